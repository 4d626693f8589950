"""uvicorn's HTTP/1.1 protocol, with one addition: a body that ends early still gets its answer."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

ENDED_EARLY = "shoal.ended_early"
# What a client still sends of a refused body is taken off the line up to here, so that it reads its answer.
DISCARDED_BYTES = 16 * 1024 * 1024


class GatewayProtocol(HttpToolsProtocol):
    """Keeps the writing side open when the client stops sending in the middle of a body.

    uvicorn closes the connection on end-of-file, so that a client that sent 50 of 100 bytes and waits would see an
    empty answer. End-of-file after a whole request stays what it is for uvicorn: the client left.
    """

    discarded_bytes = 0

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
