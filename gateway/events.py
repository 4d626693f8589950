"""Server-sent events (HTML standard, section 9.2), as OpenAI's clients read them."""

from __future__ import annotations

from starlette.types import Send

from gateway.answers import Headers, error_body, write
from wire.errors import ShoalError

HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # nginx would hold parts back.
    (b"x-accel-buffering", b"no"),
]


async def start_events(send: Send, headers: Headers) -> None:
    """Send the head of a stream."""
    await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS, *headers]})


async def send_event(send: Send, data: bytes) -> None:
    """Send one event. Raises ``ClientGone`` when the client reads nothing for too long."""
    await write(send, b"data: " + data + b"\n\n", more=True)


async def end_events(send: Send) -> None:
    """Say that the stream is complete."""
    await write(send, b"data: [DONE]\n\n", more=False)


async def end_with_error(send: Send, error: ShoalError) -> None:
    """End a stream that is not complete: clients raise what the event tells."""
    await write(send, b"data: " + error_body(error.info) + b"\n\n", more=False)
