"""Small stacks of real children, each a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from controlplane.stack.home import Endpoints, Home


def eventually(check: Callable[[], object], *, timeout_s: float = 30.0, what: str = "") -> None:
    """Return once ``check`` is true."""
    limit = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < limit, f"not within {timeout_s} s: {what or check}"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    """Whether ``pid`` is a living process and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@dataclass
class SmallStack:
    """A running ``small_stack`` in ``home``."""

    home: Home
    log: Path
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self, **environment: str) -> SmallStack:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.stack.small_stack", str(self.home.root)],
                stdout=log,
                stderr=log,
                env=os.environ | environment,
                start_new_session=True,
            )
        return self

    def wait_ready(self) -> Endpoints:
        eventually(lambda: self.home.endpoints_path.exists() or self.process.poll() is not None, what="endpoints.json")
        found = self.home.read_endpoints()
        assert found is not None, self.text
        return found

    @property
    def text(self) -> str:
        return self.log.read_text()

    def lives(self, part: str) -> list[tuple[int, int]]:
        """Process id, and id of its child in another session, of each life of ``part``."""
        path = self.home.root / f"{part}.pids"
        rows = path.read_text().splitlines() if path.exists() else []
        return [(int(row.split()[0]), int(row.split()[1])) for row in rows]

    def descendants(self) -> list[int]:
        """Every living process that the stack has started, its servers included."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(self.home.root).encode() in command and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        return [pid for pid in found if is_running(pid)]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=30)


@pytest.fixture
def small_stack(tmp_path: Path) -> Iterator[SmallStack]:
    stack = SmallStack(Home.prepare(tmp_path / "home"), tmp_path / "log")
    yield stack
    if stack.process.poll() is None:
        stack.process.terminate()
        stack.process.wait(timeout=30)
