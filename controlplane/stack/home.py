"""Files of a stack's home: secrets, endpoints, credentials, and the lock that admits one stack at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from controlplane.stack.failures import AlreadyRunningError


class Endpoints(msgspec.Struct, frozen=True):
    """Addresses of a running stack, as ``endpoints.json`` holds them."""

    web: str
    gateway: str
    nats: str
    redis: str


class Credentials(msgspec.Struct, frozen=True):
    """First account of a home, as ``credentials.json`` (mode 600) holds it.

    User and password are unknown when the database had an administrator before this home was made.
    """

    username: str | None
    password: str | None
    api_key: str | None


class Holder(msgspec.Struct, frozen=True):
    """Who holds the lock."""

    pid: int


@dataclass(frozen=True, slots=True)
class Home:
    """Where a stack keeps all its state; every path below is absolute."""

    root: Path

    @classmethod
    def prepare(cls, root: Path) -> Home:
        """The home at ``root``, made (for its owner only) when it is new."""
        home = cls(root.expanduser().resolve())
        home.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in ("nats", "redis", "run"):
            (home.root / name).mkdir(exist_ok=True, mode=0o700)
        return home

    @property
    def beat_started_path(self) -> Path:
        """Touched by beat whenever it starts."""
        return self.root / "beat-started"

    @property
    def endpoints_path(self) -> Path:
        return self.root / "endpoints.json"

    @property
    def credentials_path(self) -> Path:
        return self.root / "credentials.json"

    @property
    def machine_key_path(self) -> Path:
        """Key with which this machine's sidecar fetches artifacts."""
        return self.root / "machine_key"

    @property
    def run_dir(self) -> Path:
        """Sockets, pid files and server configuration: nothing in it outlives a stack."""
        return self.root / "run"

    def write_endpoints(self, endpoints: Endpoints) -> None:
        write_private(self.endpoints_path, msgspec.json.format(msgspec.json.encode(endpoints)) + b"\n", mode=0o644)

    def read_endpoints(self) -> Endpoints | None:
        with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
            return msgspec.json.decode(self.endpoints_path.read_bytes(), type=Endpoints)
        return None

    def read_credentials(self) -> Credentials | None:
        with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
            return msgspec.json.decode(self.credentials_path.read_bytes(), type=Credentials)
        return None

    def write_credentials(self, credentials: Credentials) -> None:
        write_private(self.credentials_path, msgspec.json.format(msgspec.json.encode(credentials)) + b"\n")

    def forget_endpoints(self) -> None:
        self.endpoints_path.unlink(missing_ok=True)


def write_private(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace ``path`` in one step; it never exists half-written or with wider rights than ``mode``."""
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        os.fchmod(fd, mode)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


class HomeLock:
    """Admits one stack per home.

    An advisory lock of the kernel, so it cannot go stale: it ends with its last holder. The guard process shares it,
    hence a stack whose supervisor was killed keeps the home until the guard has ended what was left.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._path = home.root / "up.lock"
        self.fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)

    def acquire(self, *, wait_s: float = 15.0) -> None:
        """Take the lock; raises ``AlreadyRunningError`` when a living stack has it.

        Waits up to ``wait_s`` while the last holder is dead and its guard still cleans up.
        """
        limit = time.monotonic() + wait_s
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            holder = self._read_holder()
            if holder is not None and (_is_alive(holder.pid) or time.monotonic() > limit):
                raise AlreadyRunningError(self._describe(holder.pid))
            if holder is None and time.monotonic() > limit:
                raise AlreadyRunningError(f"another process holds {self._path}")
            time.sleep(0.1)
        self._write_holder()

    def release(self) -> None:
        """Give the home back."""
        os.ftruncate(self.fd, 0)
        os.close(self.fd)

    def _write_holder(self) -> None:
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, msgspec.json.encode(Holder(os.getpid())), 0)

    def _read_holder(self) -> Holder | None:
        with contextlib.suppress(msgspec.MsgspecError):
            return msgspec.json.decode(os.pread(self.fd, 4096, 0), type=Holder)
        return None

    def _describe(self, pid: int) -> str:
        found = self._home.read_endpoints()
        where = f"web {found.web}, gateway {found.gateway}" if found else "it is still starting"
        return (
            f"a stack is already running in {self._home.root} (pid {pid}; {where}). "
            f"Stop it with: kill {pid}, or start another one with its own SHOAL_HOME and ports"
        )


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
