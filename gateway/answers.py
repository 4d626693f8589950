"""Answers on the wire: JSON bodies, OpenAI-shaped errors, headers. The one place that maps errors to HTTP."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec
from starlette.types import Send

from gateway.body import ClientGone
from wire.errors import Code, ErrorInfo, ShoalError

Headers = list[tuple[bytes, bytes]]

JSON_TYPE = (b"content-type", b"application/json")
_VALID_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}\Z")
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "conflict_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    504: "timeout_error",
}
DEFAULT_RETRY_S = 1
# uvicorn's own mark, above which it waits for the client.
BUFFERED_BYTES = 65_536
WRITE_TIMEOUT_S = 60.0

encoder = msgspec.json.Encoder()


class ErrorBody(msgspec.Struct, frozen=True):
    """Inside of an OpenAI error body; ``hint`` is ours: the next step."""

    message: str
    type: str
    code: str
    param: str | None = None
    hint: str | None = None


class ErrorAnswer(msgspec.Struct, frozen=True):
    """An OpenAI error body."""

    error: ErrorBody


def error_body(info: ErrorInfo) -> bytes:
    """JSON of ``info``. The hint is part of the message too, since clients show only that."""
    message = f"{info.message} {info.hint}" if info.hint else info.message
    kind = _ERROR_TYPES.get(info.status, "server_error")
    return encoder.encode(ErrorAnswer(ErrorBody(message, kind, info.code.value, info.param, info.hint)))


def error_headers(error: ShoalError) -> Headers:
    """Headers that belong to an error: ``Retry-After`` for what passes, ``WWW-Authenticate`` for a bad key."""
    headers: Headers = []
    if error.status in (429, 503):
        seconds = max(1, round(error.detail.get("retry_after_s", DEFAULT_RETRY_S)))
        headers.append((b"retry-after", str(seconds).encode()))
    if error.code is Code.UNAUTHENTICATED:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.detail.get("close"):
        headers.append((b"connection", b"close"))
    return headers


def header_value(text: str) -> bytes:
    """``text`` as a header value: Latin-1, without control characters."""
    if text.isascii() and text.isprintable():
        return text.encode()
    return bytes(byte if 32 <= byte != 127 else 63 for byte in text.encode("latin-1", errors="replace"))


def request_id_or(given: bytes | None, new: bytes) -> bytes:
    """The caller's request id when it is harmless, else ``new``."""
    return given if given is not None and _VALID_REQUEST_ID.match(given) else new


async def answer(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Send a whole JSON answer. Raises ``ClientGone`` when the client reads nothing of a large one."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [JSON_TYPE, (b"content-length", str(len(body)).encode()), *headers],
        }
    )
    if len(body) <= BUFFERED_BYTES:
        await send({"type": "http.response.body", "body": body})
        return
    # The server takes the end of the answer once the client has read most of it: until then the request counts as in
    # flight, and clients that read slowly cannot pile up answers in memory.
    await write(send, body, more=True)
    await write(send, b"", more=False)


async def write(send: Send, body: bytes, *, more: bool) -> None:
    """Send a part of a body. Raises ``ClientGone`` when the client reads nothing for a minute."""
    try:
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await send({"type": "http.response.body", "body": body, "more_body": more})
    except TimeoutError:
        raise ClientGone from None


async def answer_error(send: Send, error: ShoalError, headers: Headers) -> None:
    """Send an error."""
    await answer(send, error.status, [*headers, *error_headers(error)], error_body(error.info))


async def answer_json(send: Send, value: Any, headers: Headers, status: int = 200) -> None:
    """Send ``value`` as JSON."""
    await answer(send, status, headers, encoder.encode(value))
