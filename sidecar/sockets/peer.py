"""Who is at the other end of a Unix socket, and ending it without ever hitting a process that took its id over."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
from dataclasses import dataclass

_UCRED = struct.Struct("3i")


@dataclass(slots=True)
class Peer:
    """Process at the other end, from SO_PEERCRED at connect time; ``handle`` is its pidfd."""

    pid: int
    uid: int
    handle: int | None

    @classmethod
    def of(cls, sock: socket.socket) -> Peer:
        """The peer of a connected Unix socket."""
        pid, uid, _ = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        handle: int | None = None
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(pid)
        return cls(pid, uid, handle)

    def kill(self, claimed_pid: int) -> bool:
        """SIGKILL the peer; ``False`` when it is not ours, or not who it said it was, or gone."""
        if self.handle is None or claimed_pid != self.pid or self.uid != os.getuid() or self.pid == os.getpid():
            return False
        try:
            signal.pidfd_send_signal(self.handle, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        """Give the pidfd back."""
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None
