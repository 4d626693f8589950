"""The whole of Shoal as a person runs it: ``manage.py up`` in a home of its own, on free ports."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from controlplane.stack.home import Credentials, Endpoints, Home

PROJECT = Path(__file__).resolve().parent.parent.parent
BOOT_TIMEOUT_S = 240.0
# settings of whoever runs the tests must not leak into the stack
_OURS = re.compile(r"^(SHOAL_|DATABASE_URL|REDIS_URL|NATS_URL|DJANGO_)")


def eventually(check: Callable[[], object], *, timeout_s: float, what: str) -> None:
    """Return once ``check`` is true; fails with ``what`` after ``timeout_s``."""
    limit = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < limit, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.1)


@dataclass
class RunningStack:
    """A stack in ``root``: start, addresses, credentials, process ids, stop."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def home(self) -> Home:
        return Home(self.root / "home")

    @property
    def log_path(self) -> Path:
        return self.root / "up.log"

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def endpoints(self) -> Endpoints:
        found = self.home.read_endpoints()
        assert found is not None, "endpoints.json is not there"
        return found

    @property
    def credentials(self) -> Credentials:
        found = self.home.read_credentials()
        assert found is not None, "credentials.json is not there"
        return found

    def start(self) -> float:
        """Start and wait until all is ready; returns the seconds that took."""
        kept = {key: value for key, value in os.environ.items() if not _OURS.match(key)}
        ours = {"SHOAL_HOME": str(self.home.root), "SHOAL_WEB_PORT": "0", "SHOAL_GATEWAY_PORT": "0"}
        began = time.monotonic()
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up"],
                cwd=PROJECT,
                env=kept | ours | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        while not self.home.endpoints_path.exists():
            assert self.process.poll() is None, f"up ended with {self.process.returncode}:\n{self.log[-6000:]}"
            assert time.monotonic() - began < BOOT_TIMEOUT_S, f"not ready:\n{self.log[-6000:]}"
            time.sleep(0.1)
        return time.monotonic() - began

    def stop(self, number: int = signal.SIGINT) -> int:
        """Send ``number`` to ``up`` and wait for its end; returns its exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=90)

    def pid_of(self, part: str) -> int:
        """Process id of the last life of ``part`` that got ready, as the log tells it."""
        found = re.findall(rf"^{re.escape(part)} *│ ready after [\d.]+ s \(pid (\d+)\)$", self.log, re.MULTILINE)
        assert found, f"{part} never got ready:\n{self.log[-3000:]}"
        return int(found[-1])

    def times_ready(self, part: str) -> int:
        """How often ``part`` got ready since the first start."""
        return len(re.findall(rf"^{re.escape(part)} *│ ready after", self.log, re.MULTILINE))

    def processes(self) -> list[int]:
        """Every living process whose environment names this home."""
        wanted = f"SHOAL_HOME={self.home.root}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if (
                    wanted in (entry / "environ").read_bytes().split(b"\0")
                    or str(self.home.root).encode() in (entry / "cmdline").read_bytes()
                ):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found
