"""Last line against orphans: ends every process of a stack whose supervisor is gone.

Runs as a script of its own with the standard library only. It waits on a pipe that the supervisor holds open; the
kernel closes it however the supervisor ends, SIGKILL included. A stack's processes are known by a mark in their
environment, so children that left their process group or were adopted by init are found as well.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

MARK = "SHOAL_STACK_MARK"


def find_marked(mark: str) -> list[int]:
    """Ids of living processes whose environment holds a mark that starts with ``mark``, without this process."""
    wanted = f"\0{MARK}={mark}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            # a zombie's environment reads empty, so it is not found again
            if wanted in b"\0" + Path(f"/proc/{entry}/environ").read_bytes():
                found.append(int(entry))
    return found


def send_signal(pids: list[int], number: int) -> None:
    """Signal each process that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_marked(mark: str, *, grace_s: float) -> int:
    """TERM to every marked process, KILL after ``grace_s`` to those still there; returns how many needed KILL."""
    send_signal(find_marked(mark), signal.SIGTERM)
    limit = time.monotonic() + grace_s
    while time.monotonic() < limit:
        if not find_marked(mark):
            return 0
        time.sleep(0.1)
    killed = 0
    # a process may fork between the scan and the signal, hence more than one round
    for _ in range(20):
        left = find_marked(mark)
        if not left:
            break
        killed += len(left)
        send_signal(left, signal.SIGKILL)
        time.sleep(0.05)
    return killed


def main() -> None:
    """``guard.py PIPE_FD MARK GRACE_S [FILE …]``: wait for the end of the pipe, end what is marked, remove files."""
    pipe_fd, mark, grace_s = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        while os.read(pipe_fd, 64):
            pass
    end_marked(mark, grace_s=grace_s)
    for stale in sys.argv[4:]:
        Path(stale).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
