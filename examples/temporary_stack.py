"""The whole stack in a temporary home on free ports, gone at the end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
BOOT_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 60.0
_OURS = re.compile(r"SHOAL_|DJANGO_|DATABASE_URL|REDIS_URL|NATS_URL")


class StackError(RuntimeError):
    """The stack did not come up."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a stack answers, and its first API key."""

    web: str
    gateway: str
    api_key: str
    home: Path


@contextlib.contextmanager
def temporary_stack() -> Iterator[Addresses]:
    """Runs ``manage.py up`` and yields its addresses once everything is ready. Raises ``StackError``."""
    with tempfile.TemporaryDirectory(prefix="shoal-demo-") as folder:
        home, log = Path(folder) / "home", Path(folder) / "up.log"
        environment = {
            # a person's own settings would lead to their own database, queue or storage
            **{name: value for name, value in os.environ.items() if not _OURS.match(name)},
            "SHOAL_HOME": str(home),
            "SHOAL_WEB_PORT": "0",
            "SHOAL_GATEWAY_PORT": "0",
        }
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "manage.py", "up"],
                cwd=PROJECT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield _wait(process, home)
        except BaseException:
            print(f"the stack's log ends with:\n{_tail(log)}", file=sys.stderr)
            raise
        finally:
            _stop(process)


def _wait(process: subprocess.Popen[bytes], home: Path) -> Addresses:
    limit = time.monotonic() + BOOT_TIMEOUT_S
    while not (home / "endpoints.json").exists():
        if process.poll() is not None or time.monotonic() > limit:
            raise StackError("the stack did not come up")
        time.sleep(0.1)
    endpoints = json.loads((home / "endpoints.json").read_text())
    credentials = json.loads((home / "credentials.json").read_text())
    return Addresses(endpoints["web"], endpoints["gateway"], credentials["api_key"], home)


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-4000:]


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(timeout=STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
