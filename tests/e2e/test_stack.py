"""Every part answers, comes back after SIGKILL and serves again; the end leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from openai import OpenAI, OpenAIError
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.e2e.running import PROJECT, RunningStack, eventually

BASE = "sentence-transformers/all-MiniLM-L6-v2"
PARTS = ("nats", "valkey", "web", "tasks", "validate", "beat", "bridge", "probe", "gateway", "sidecar", "worker")

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def own_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """A stack of this file alone: its parts are killed and it is stopped."""
    running = RunningStack(tmp_path_factory.mktemp("own"))
    running.start()
    yield running
    running.stop()


def embed(stack: RunningStack) -> list[float]:
    with OpenAI(base_url=f"{stack.endpoints.gateway}/v1", api_key=stack.credentials.api_key, max_retries=0) as client:
        return client.embeddings.create(model=BASE, input="a shoal of small fish").data[0].embedding


def serves(stack: RunningStack) -> bool:
    try:
        return len(embed(stack)) == 384
    except OpenAIError:
        return False


def test_every_part_got_ready_and_answers(own_stack: RunningStack) -> None:
    assert {part: own_stack.times_ready(part) >= 1 for part in PARTS} == dict.fromkeys(PARTS, True)
    assert httpx.get(f"{own_stack.endpoints.web}/readyz").status_code == 200
    assert httpx.get(f"{own_stack.endpoints.gateway}/readyz").status_code == 200
    assert len(embed(own_stack)) == 384


def test_only_loopback_is_listened_on(own_stack: RunningStack) -> None:
    ours = {str(pid) for pid in own_stack.processes()}
    inodes = {
        os.readlink(fd)[8:-1]
        for pid in ours
        for fd in Path(f"/proc/{pid}/fd").glob("*")
        if fd.is_symlink() and os.path.lexists(fd) and os.readlink(fd).startswith("socket:[")
    }
    listening = [
        row.split()
        for table in ("tcp", "tcp6")
        for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        if row.split()[3] == "0A"
    ]
    addresses = {row[1].partition(":")[0] for row in listening if row[9] in inodes}
    assert addresses == {"0100007F"}


def test_credentials_are_private_and_open_the_pages(own_stack: RunningStack) -> None:
    assert stat.S_IMODE(own_stack.home.credentials_path.stat().st_mode) == 0o600
    made = own_stack.credentials
    assert made.password
    assert made.api_key
    assert made.password in own_stack.log
    assert made.api_key in own_stack.log
    with httpx.Client(base_url=own_stack.endpoints.web, follow_redirects=True) as browser:
        browser.get("/login/")
        token = browser.cookies["csrftoken"]
        form = {"username": made.username, "password": made.password, "csrfmiddlewaretoken": token}
        answer = browser.post("/login/?next=/adapters/", data=form)
        assert answer.status_code == 200
        assert answer.url.path == "/adapters/"


def test_live_figures_for_programs_with_a_key_and_not_for_pages_of_other_sites(own_stack: RunningStack) -> None:
    address = f"{own_stack.endpoints.web.replace('http', 'ws')}/ws/fleet/"
    key = {"Authorization": f"Bearer {own_stack.credentials.api_key}"}
    with connect(address, additional_headers=key) as socket:
        assert json.loads(socket.recv(timeout=10))["workers"]
    with pytest.raises(InvalidStatus):
        connect(address, additional_headers=key, origin=Origin("https://elsewhere.example.org"))


def test_second_up_is_refused(own_stack: RunningStack) -> None:
    second = subprocess.run(
        [sys.executable, "manage.py", "up"],
        cwd=PROJECT,
        env=os.environ | {"SHOAL_HOME": str(own_stack.home.root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert second.returncode != 0
    assert own_stack.process is not None
    assert f"pid {own_stack.process.pid}" in second.stderr
    assert own_stack.endpoints.web in second.stderr


@pytest.mark.parametrize("part", PARTS)
def test_killed_part_comes_back_and_all_serves_again(own_stack: RunningStack, part: str) -> None:
    before = own_stack.times_ready(part)
    os.kill(own_stack.pid_of(part), signal.SIGKILL)
    eventually(lambda: own_stack.times_ready(part) > before, timeout_s=90, what=f"{part} ready again")
    eventually(lambda: serves(own_stack), timeout_s=60, what="an embedding")
    assert httpx.get(f"{own_stack.endpoints.web}/readyz", timeout=10).status_code == 200


def test_interrupt_leaves_nothing_and_the_next_start_keeps_everything(tmp_path: Path) -> None:
    running = RunningStack(tmp_path)
    running.start()
    first, before = running.credentials, embed(running)
    assert running.stop(signal.SIGINT) == 0
    assert running.processes() == []
    assert not running.home.endpoints_path.exists()
    assert first.password
    shown = running.log.count(first.password)
    running.start()
    try:
        assert running.credentials == first
        assert running.log.count(first.password) == shown == 1, "the password is shown at the first boot only"
        assert embed(running) == pytest.approx(before, abs=1e-6)
    finally:
        running.stop()
