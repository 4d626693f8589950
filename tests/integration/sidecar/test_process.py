"""The process: boot errors, orderly end, death of a stage, SIGKILL."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path

import pytest

from gateway.settings import GatewaySettings
from sidecar.dispatch.upkeep import Upkeep
from sidecar.service import Sidecar
from sidecar.settings import SidecarSettings
from tests.integration.sidecar.conftest import Bench, until


async def start(home: Path, **environment: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sidecar", env={**os.environ, "SHOAL_HOME": str(home), **environment},
        stdout=DEVNULL, stderr=PIPE,
    )  # fmt: skip


async def test_every_wrong_setting_is_reported_at_once(tmp_path: Path) -> None:
    process = await start(
        tmp_path, SHOAL_CACHE_BYTES="none", SHOAL_WEB_URL="ftp://x", SHOAL_MACHINE_KEY_FILE=str(tmp_path / "missing")
    )  # fmt: skip
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert b"SHOAL_MACHINE_KEY_FILE" in errors
    process = await start(tmp_path, SHOAL_CACHE_BYTES="none", SHOAL_WEB_URL="ftp://x")
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert b"SHOAL_CACHE_BYTES" in errors
    assert b"SHOAL_WEB_URL" in errors


def test_a_secret_may_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("shoal_secret\n")
    monkeypatch.setenv("SHOAL_MACHINE_KEY_FILE", str(tmp_path / "key"))
    (tmp_path / "nats").write_text("nats://user:word@queue:4222\n")
    monkeypatch.setenv("NATS_URL", "")
    monkeypatch.setenv("NATS_URL_FILE", str(tmp_path / "nats"))
    for settings_class in (SidecarSettings, GatewaySettings):
        assert settings_class().nats_url == "nats://user:word@queue:4222"
        assert settings_class(nats_url="nats://given").nats_url == "nats://given"
    settings = SidecarSettings()
    assert settings.machine_key.get_secret_value() == "shoal_secret"
    assert "shoal_secret" not in repr(settings)


@pytest.mark.parametrize("settings_class", [SidecarSettings, GatewaySettings])
def test_every_file_that_cannot_be_read_is_named(
    settings_class: type[SidecarSettings] | type[GatewaySettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NATS_URL", raising=False)
    (tmp_path / "binary").write_bytes(b"\xff")
    monkeypatch.setenv("NATS_URL_FILE", str(tmp_path / "missing"))
    monkeypatch.setenv("SHOAL_QUEUE_STORAGE_FILE", str(tmp_path / "binary"))
    with pytest.raises(ValueError, match="_FILE names") as caught:
        settings_class()
    assert "missing: No such file" in str(caught.value)
    assert "SHOAL_QUEUE_STORAGE_FILE names" in str(caught.value)


def test_a_socket_path_too_long_for_the_system_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_SOCKET", "/" + "x" * 120)
    with pytest.raises(ValueError, match="107"):
        SidecarSettings()


async def test_a_dead_stage_ends_the_process(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Upkeep) -> None:
        raise RuntimeError("broken stage")

    monkeypatch.setattr(Upkeep, "_expire", fail)
    settings = SidecarSettings(
        nats_url=bench.nats_url, socket=bench.home / "dying.sock", cache_dir=bench.home / "cache"
    )
    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.timeout(10):
            await Sidecar(settings).run()
    assert "broken stage" in str(caught.value.exceptions[0])


async def test_sigkill_loses_no_job_and_sigterm_ends_in_order(bench: Bench) -> None:
    """A killed sidecar says nothing: the queue delivers its jobs again once their ack_wait (15 s) is over."""
    environment = {"NATS_URL": bench.nats_url, "SHOAL_MACHINE": "m1"}
    socket = bench.home / "sidecar.sock"
    first = await start(bench.home, **environment)
    held = await bench.worker(socket, answerer=lambda job: None)
    jobs = [await bench.publish(deadline_s=60) for _ in range(20)]
    await until(lambda: len(held.received) == len(jobs))
    first.send_signal(signal.SIGKILL)
    await first.wait()
    await held.closed.wait()
    second = await start(bench.home, **environment)
    await bench.worker(socket)
    quick = await bench.publish()
    assert (await bench.answer(quick, 10)).outputs is not None
    await until(lambda: len(bench.answers) == len(jobs) + 1, 30)
    assert all(len(results) == 1 for results in bench.answers.values())
    await bench.expect_empty_queue()
    second.send_signal(signal.SIGTERM)
    _, log = await second.communicate()
    assert second.returncode == 0, log.decode()
    assert not socket.exists()
    await first.communicate()
