"""uvicorn's HTTP/1.1 protocol, with three additions for the request path.

A body that ends early still gets its answer; a body that is here already is handed over without a wait; and who waits
for the client's leaving is called, so that no task has to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

ENDED_EARLY = "shoal.ended_early"
_CYCLE = "shoal.cycle"
_ON_GONE = "shoal.on_gone"
# What a client still sends of a refused body is taken off the line up to here, so that it reads its answer.
DISCARDED_BYTES = 16 * 1024 * 1024


class GatewayProtocol(HttpToolsProtocol):
    """Keeps the writing side open when the client stops sending in the middle of a body.

    uvicorn closes the connection on end-of-file, so that a client that sent 50 of 100 bytes and waits would see an
    empty answer. End-of-file after a whole request stays what it is for uvicorn: the client left.
    """

    discarded_bytes = 0

    def on_headers_complete(self) -> None:
        """Let the application find what the server knows of its request."""
        # uvicorn makes the cycle inside and starts its task, which runs no earlier than the loop's next turn.
        super().on_headers_complete()
        self.cycle.scope[_CYCLE] = self.cycle  # type: ignore[literal-required]

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who waits for the client's leaving."""
        super().connection_lost(exc)
        if self.cycle is not None and not self.cycle.response_complete:
            on_gone = cast(dict[str, Any], self.cycle.scope).get(_ON_GONE)
            if on_gone is not None:
                on_gone()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body; of a request that is answered already, only so much."""
        if self.cycle.response_complete:
            self.discarded_bytes += len(body)
            if self.discarded_bytes > DISCARDED_BYTES:
                self.transport.close()
        super().on_body(body)

    def eof_received(self) -> Any:
        """``True`` keeps the transport open for writing."""
        cycle = self.cycle
        if cycle is None or not cycle.more_body or cycle.response_complete:
            return None
        cycle.scope[ENDED_EARLY] = True  # type: ignore[literal-required]
        cycle.keep_alive = False
        cycle.message_event.set()
        return True


def take_whole_body(scope: Scope) -> bytes | None:
    """The request's body if all of it is here; ``None`` where it has to be awaited."""
    cycle: RequestResponseCycle | None = scope.get(_CYCLE)
    if cycle is None or cycle.more_body or cycle.disconnected or ENDED_EARLY in scope:
        return None
    body = bytes(cycle.body)
    cycle.body = bytearray()
    cycle.message_event.clear()
    return body


def call_when_gone(scope: Scope, callback: Callable[[], None]) -> None:
    """Call ``callback`` once if the client leaves before its answer is complete, also when it has left already."""
    cycle: RequestResponseCycle = scope[_CYCLE]
    if cycle.disconnected:
        callback()
    else:
        scope[_ON_GONE] = callback


def drop_connection(scope: Scope) -> None:
    """End the connection with what is unsent: a close would keep it in memory for a client that reads nothing."""
    cycle: RequestResponseCycle | None = scope.get(_CYCLE)
    if cycle is not None and not cycle.response_complete:
        cycle.disconnected = True
        cycle.transport.abort()
