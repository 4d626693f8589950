"""Files of a home: rights, atomic writes, one stack at a time."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from controlplane.stack.banner import describe_ready
from controlplane.stack.failures import AlreadyRunningError
from controlplane.stack.home import Credentials, Endpoints, Home, HomeLock, write_private

ENDPOINTS = Endpoints("http://127.0.0.1:1", "http://127.0.0.1:2", "nats://127.0.0.1:3", "redis://127.0.0.1:4/0")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.prepare(tmp_path / "home")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_home_is_for_its_owner_only(home: Home) -> None:
    assert mode(home.root) == 0o700


def test_private_file_has_its_mode_under_any_umask_and_leaves_no_half(home: Home) -> None:
    before = os.umask(0)
    try:
        write_private(home.root / "key", b"one")
        write_private(home.root / "key", b"two")
    finally:
        os.umask(before)
    assert (home.root / "key").read_bytes() == b"two"
    assert mode(home.root / "key") == 0o600
    assert not list(home.root.glob(".key.*"))


def test_endpoints_round_trip_and_are_forgotten(home: Home) -> None:
    assert home.read_endpoints() is None
    home.write_endpoints(ENDPOINTS)
    assert home.read_endpoints() == ENDPOINTS
    assert set(msgspec.json.decode(home.endpoints_path.read_bytes())) == {"web", "gateway", "nats", "redis"}
    home.forget_endpoints()
    home.forget_endpoints()
    assert home.read_endpoints() is None


def test_credentials_are_shown_on_the_first_boot_only(home: Home) -> None:
    made = Credentials("admin", "a password", "shoal_key")
    home.write_credentials(made)
    assert mode(home.credentials_path) == 0o600
    first = describe_ready(home, ENDPOINTS, first_boot=True, took_s=1)
    later = describe_ready(home, ENDPOINTS, first_boot=False, took_s=1)
    assert all(value in first for value in ("admin", "a password", "shoal_key"))
    assert not any(value in later for value in ("a password", "shoal_key"))
    assert str(home.credentials_path) in later


def test_second_holder_is_told_who_runs_and_where(home: Home) -> None:
    lock = HomeLock(home)
    lock.acquire()
    home.write_endpoints(ENDPOINTS)
    with pytest.raises(AlreadyRunningError, match=rf"pid {os.getpid()}; web http://127.0.0.1:1"):
        HomeLock(home).acquire()
    lock.release()
    HomeLock(home).acquire()


def test_lock_of_a_killed_holder_is_free(home: Home) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from controlplane.stack.home import Home, HomeLock;"
        "HomeLock(Home(Path(sys.argv[1]))).acquire(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(home.root)], check=False)
    assert killed.returncode == -9
    HomeLock(home).acquire(wait_s=0)
