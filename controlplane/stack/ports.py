"""Ports on loopback that stay ours for the life of the stack."""

from __future__ import annotations

import random
import socket
from dataclasses import dataclass, field

from controlplane.stack.failures import StackError

# below the usual ephemeral range (32768 and up), so that no outgoing connection takes one between two lives of a child
_LOWEST, _HIGHEST = 18_000, 29_999
_ATTEMPTS = 200


@dataclass(slots=True)
class PortReservations:
    """Holds each port bound but not listening.

    A socket with SO_REUSEADDR that does not listen lets the child (which sets it too) bind and listen, while others
    find the port taken, also in the moment between a child's death and its restart.
    """

    _held: list[socket.socket] = field(default_factory=list)

    def reserve(self, wanted: int, *, setting: str) -> int:
        """``wanted``, or a free port when it is 0. Raises ``StackError`` naming ``setting`` when it is taken."""
        return self._reserve_exact(wanted, setting) if wanted else self._reserve_free(setting)

    def release(self) -> None:
        """Let go of all ports."""
        for held in self._held:
            held.close()
        self._held.clear()

    def _reserve_exact(self, wanted: int, setting: str) -> int:
        # connections of a stack that ended a moment ago linger for a minute and forbid a strict bind only
        if not (_can_bind(wanted) or _can_listen(wanted)) or self._hold(wanted) is None:
            raise StackError(
                f"port {wanted} on 127.0.0.1 is taken by another program or not allowed: "
                f"stop that program, or set {setting} to another port (0 picks a free one)"
            )
        return wanted

    def _reserve_free(self, setting: str) -> int:
        for _ in range(_ATTEMPTS):
            port = random.randint(_LOWEST, _HIGHEST)  # noqa: S311 - no secret
            if _can_bind(port) and self._hold(port) is not None:
                return port
        raise StackError(f"no free port between {_LOWEST} and {_HIGHEST} for {setting}")

    def _hold(self, port: int) -> int | None:
        held = socket.socket()
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind(("127.0.0.1", port))
        except OSError:
            held.close()
            return None
        self._held.append(held)
        return port


def _can_bind(port: int) -> bool:
    """Whether nobody listens on ``port`` nor holds it as we do."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _can_listen(port: int) -> bool:
    """Whether nobody listens on ``port``; another stack may hold it in the moment before its child listens."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen(1)
        except OSError:
            return False
        return True
