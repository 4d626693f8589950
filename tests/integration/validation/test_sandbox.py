"""Children that die, hang or eat memory: the caller learns which, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from loras.validation.limits import GIB, SandboxLimits
from loras.validation.pipeline import examine
from loras.validation.probing import probe
from loras.validation.runner import Ending, run_validation
from loras.validation.sandbox import ChildEnding, run_child
from tests.integration.validation.conftest import SOURCE, MakeAdapter, probe_server, request_for
from tests.unit.validation.uploads import Upload, adapter, configuration, lora, paths, zipped
from wire.codec import decode_json, encode_json
from wire.manifest import Manifest
from wire.reports import Finding
from wire.validation import ArchiveLimits, ProbeEnding, ProbeReply, ProbeRequest, SandboxReply, ValidationRequest

pytestmark = pytest.mark.timeout(400)
MEBIBYTE = 1 << 20
# a catastrophic regular expression: minutes of work from a few bytes
SLOW_PATTERN = {r"(.*.*.*.*.*.*.*.*)*x": 4}


def with_header_text(text: bytes) -> Upload:
    return adapter(len(text).to_bytes(8, "little") + text)


BOMBS: dict[str, Callable[[], Upload]] = {
    "zip ratio": lambda: Upload({"a.zip": zipped({"adapter_model.safetensors": bytes(100 * MEBIBYTE)})}),
    "wide header": lambda: with_header_text(b'{"a":[' + b"0," * (20 * MEBIBYTE) + b"0]}"),
    "deep header": lambda: with_header_text(b'{"a":' * (2 * MEBIBYTE)),
    "long text": lambda: with_header_text(b'{"__metadata__":{"a":"' + b"x" * (60 * MEBIBYTE) + b'"}}'),
    "wide configuration": lambda: Upload(adapter().files | {"adapter_config.json": b"[" + b"{}," * MEBIBYTE + b"{}]"}),
}


def answered_within(request: ValidationRequest, memory_bytes: int) -> None:
    """Assert a refusal from a child whose whole address space, Python and numpy included, is that small."""
    limits = SandboxLimits(memory_bytes=memory_bytes)
    result = run_child("loras.validation", limits.arguments(), encode_json(request), timeout_s=100)
    assert result.ending is ChildEnding.ANSWERED, result.reason
    assert decode_json(result.reply, SandboxReply).report.failed


@pytest.mark.parametrize("name", list(BOMBS))
def test_memory_of_the_child_is_bounded(tmp_path: Path, name: str) -> None:
    request = BOMBS[name]().request(tmp_path)
    answered_within(request, 500 * MEBIBYTE)


def test_forged_zip_directory_does_not_fill_memory(tmp_path: Path) -> None:
    request = Upload({"b.zip": b"PK\x03\x04"}).request(tmp_path)
    size = 3 * GIB
    with Path(request.files[0].location).open("r+b") as file:
        file.seek(size)
        file.write(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, size, 0, 0))
    answered_within(request, 300 * MEBIBYTE)


def test_a_check_that_never_ends_is_stopped(tmp_path: Path) -> None:
    long_names = lora(paths("query"), prefix="base_model.model." + "y" * 60 + ".")
    upload = adapter(long_names, configuration(rank_pattern=SLOW_PATTERN, target_modules=["query"]))
    outcome = run_validation(upload.request(tmp_path), limits=SandboxLimits(timeout_s=0.6, cpu_s=60))
    assert outcome.ending is Ending.TIMED_OUT
    assert [row.code for row in outcome.report.rows] == [Finding.VALIDATION_TIMEOUT]
    assert outcome.canonical_path is None


def test_processor_time_is_limited_too(tmp_path: Path) -> None:
    long_names = lora(paths("query"), prefix="base_model.model." + "y" * 60 + ".")
    upload = adapter(long_names, configuration(rank_pattern=SLOW_PATTERN, target_modules=["query"]))
    outcome = run_validation(upload.request(tmp_path), limits=SandboxLimits(timeout_s=100, cpu_s=1))
    assert outcome.ending is Ending.TIMED_OUT


def test_a_child_without_memory_is_a_crash_that_can_be_counted(tmp_path: Path) -> None:
    request = adapter().request(tmp_path)
    outcome = run_validation(request, limits=SandboxLimits(memory_bytes=40 * MEBIBYTE))
    assert outcome.ending is Ending.CRASHED
    assert outcome.report.rows[-1].code is Finding.VALIDATION_CRASHED
    assert outcome.canonical_path is None


def test_a_full_disk_is_a_crash_and_no_verdict(tmp_path: Path) -> None:
    data = os.urandom(8 * MEBIBYTE)
    upload = Upload({"a.zip": zipped({"adapter_model.safetensors": data})}, limits=ArchiveLimits())
    outcome = run_validation(upload.request(tmp_path), limits=SandboxLimits(file_bytes=4 * MEBIBYTE))
    assert outcome.ending is Ending.CRASHED


def test_missing_work_dir_is_the_callers_mistake(tmp_path: Path) -> None:
    request = adapter().request(tmp_path)
    (tmp_path / "work").rmdir()
    with pytest.raises(NotADirectoryError):
        run_validation(request, limits=SandboxLimits())


def probe_request(folder: Path, work: Path, manifest: Manifest) -> ProbeRequest:
    work.mkdir()
    reply = examine(request_for(folder, work, manifest))
    assert reply.probe is not None
    return reply.probe


def test_warm_server_outlives_its_children(tmp_path: Path, make_adapter: MakeAdapter, minilm: Manifest) -> None:
    """Three probes in a row, one child killed, one out of time, one without memory: the next probe still passes."""
    request = probe_request(make_adapter(r=4, target_modules=["query"]), tmp_path / "work", minilm)
    with probe_server(tmp_path, "--preload", SOURCE) as server:
        for _ in range(3):
            reply = probe(request, limits=SandboxLimits(), server=server.socket)
            assert [row.code for row in reply.rows] == [Finding.PROBE_PASSED, Finding.OK]
            assert reply.max_difference is not None
            assert reply.max_difference < 1e-5
            assert reply.effect is not None
            assert reply.effect > 1e-4
        assert server.threads() == 1
        assert server.socket.stat().st_mode & 0o077 == 0

        server.wait_idle()
        replies: list[ProbeReply] = []
        asking = threading.Thread(
            target=lambda: replies.append(probe(request, limits=SandboxLimits(), server=server.socket))
        )
        asking.start()
        while not (children := server.children()):
            time.sleep(0.001)
        os.kill(children[0], signal.SIGKILL)
        asking.join()
        assert [reply.ending for reply in replies] == [ProbeEnding.CRASHED]
        assert probe(request, limits=SandboxLimits(), server=server.socket).ending is ProbeEnding.DECIDED
        server.wait_idle()
        process = server.process
    assert process.returncode == 0
    assert not server.socket.exists()


def test_warm_server_limits_time_of_a_probe(tmp_path: Path, make_adapter: MakeAdapter, minilm: Manifest) -> None:
    request = probe_request(make_adapter(r=4, target_modules=["query"]), tmp_path / "work", minilm)
    with probe_server(tmp_path, "--preload", SOURCE, "--timeout-s", "0.001") as server:
        reply = probe(request, limits=SandboxLimits(), server=server.socket)
        assert reply.ending is ProbeEnding.TIMED_OUT
        assert server.process.poll() is None
