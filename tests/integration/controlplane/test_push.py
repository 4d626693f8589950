"""``shoal push`` as CI runs it: exit codes, what it prints, and large uploads over a line that breaks."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from client import Shoal, Unreachable
from tests.integration.controlplane.adapters import lora_files
from tests.integration.controlplane.site import MINILM, ROOT, Site
from tests.servers import free_port

pytestmark = pytest.mark.timeout(300)


def folder(path: Path, files: dict[str, bytes]) -> Path:
    path.mkdir()
    for name, data in files.items():
        (path / name).write_bytes(data)
    return path


def shoal(site: Site, *arguments: str, url: str = "") -> subprocess.CompletedProcess[str]:
    environment = {
        **site.environment, "SHOAL_URL": url or site.url, "SHOAL_API_KEY": site.secrets["api_key"],
        "XDG_CONFIG_HOME": str(site.home / "nobody"),
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, "-m", "client", *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_exit_codes_say_what_became_of_it(site: Site, tmp_path: Path) -> None:
    good = folder(tmp_path / "good", lora_files(4001))
    done = shoal(site, "push", str(good), "--name", "admin/ci", "--promote", "--json", "-m", "run 7")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["number"], said["state"], said["aliases"], said["message"]) == (1, "ready", ["live"], "run 7")
    assert done.stderr == ""
    again = shoal(site, "push", str(good), "--name", "admin/ci")
    assert again.returncode == 0
    assert "admin/ci@1 is ready (the same content was uploaded before; nothing new was registered)" in again.stdout
    assert "sent" in again.stderr

    files = lora_files(4002)
    cut = folder(tmp_path / "cut", {**files, "adapter_model.safetensors": files["adapter_model.safetensors"][:-9]})
    rejected = shoal(site, "push", str(cut), "--name", "admin/ci")
    assert rejected.returncode == 2
    assert "TRUNCATED" in rejected.stdout
    assert "admin/ci@2 is rejected" in rejected.stdout

    nameless = folder(tmp_path / "nameless", lora_files(4003, base=None))
    asked = shoal(site, "push", str(nameless), "--name", "admin/ci-asks")
    assert asked.returncode == 4, asked.stdout + asked.stderr
    assert f"--base-model {MINILM}" in asked.stdout
    answered = shoal(site, "push", str(nameless), "--name", "admin/ci-asks", "--base-model", MINILM)
    assert answered.returncode == 0, answered.stdout + answered.stderr

    refused = shoal(site, "push", str(good), "--name", "rivals/ci")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "There is no team 'rivals' for you" in refused.stderr
    away = shoal(site, "push", str(good), "--name", "admin/ci", url=f"http://127.0.0.1:{free_port()}")
    assert away.returncode == 3
    assert "cannot be reached" in away.stderr
    for answer in (refused, away, rejected, asked):
        assert "Traceback" not in answer.stderr


class BreakingLine(httpx.HTTPTransport):
    """A line that breaks at every third chunk: before it is sent, and after it, so that its answer is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.chunks = 0
        self.dead = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.dead:
            raise httpx.ConnectError("no network")
        if request.method != "PATCH":
            return super().handle_request(request)
        self.chunks += 1
        if self.chunks % 3 == 1:
            raise httpx.WriteError("cut before")
        answer = super().handle_request(request)
        if self.chunks % 3 == 2:
            answer.close()
            raise httpx.ReadError("cut after")
        return answer


@pytest.fixture
def breaking(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Shoal, BreakingLine]]:
    """A client that sends everything in small chunks over such a line, and does not sleep."""
    monkeypatch.setattr("client.resumable.CHUNK_BYTES", 100_000)
    monkeypatch.setattr("client.api.RESUMABLE_BYTES", 1)
    monkeypatch.setattr("client.resumable.PAUSES_S", (0.0,) * 7)
    line = BreakingLine()
    with Shoal(site.url, site.secrets["api_key"]) as connected:
        connected._http.close()
        key = {"Authorization": f"Bearer {site.secrets['api_key']}"}
        connected._http = httpx.Client(transport=line, headers=key, timeout=30)
        yield connected, line


def test_a_breaking_line_ends_bit_identical_and_a_dead_one_goes_on_later(
    breaking: tuple[Shoal, BreakingLine], tmp_path: Path
) -> None:
    connected, line = breaking
    data = np.random.default_rng(1).bytes(850_001)
    path = folder(tmp_path / "big", {"adapter_model.safetensors": data, "adapter_config.json": b"{}"})
    seen: list[tuple[int, int]] = []

    def die_half_way(sent: int, total: int) -> None:
        seen.append((sent, total))
        line.dead = line.dead or sent > 400_000

    with pytest.raises(Unreachable):
        connected.push(path, name="admin/breaking", progress=die_half_way)
    assert seen[-1][0] < 850_003
    line.dead = False
    notes: list[str] = []
    seen.clear()
    made = connected.push(path, name="admin/breaking", progress=lambda *at: seen.append(at), note=notes.append)
    assert any(note.startswith("adapter_model.safetensors: goes on at ") for note in notes)
    assert seen[-1] == (850_003, 850_003)
    with httpx.Client(headers=connected._http.headers, timeout=30) as plain:
        files = {file["path"]: file["sha256"] for file in plain.get(made.url).json()["files"]}
    assert files["adapter_model.safetensors"] == hashlib.sha256(data).hexdigest()
    chunks = line.chunks
    known = connected.push(path, name="admin/breaking", note=notes.append)
    assert (line.chunks, known.number) == (chunks, 1)
    assert "nothing is sent" in notes[-1]
