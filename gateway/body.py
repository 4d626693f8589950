"""Reading a request's body: bounded while it streams, told when the client leaves."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Scope

from gateway.protocol import DISCARDED_BYTES, ENDED_EARLY, take_whole_body
from wire.errors import Code, ShoalError


class ClientGone(Exception):
    """The client closed its connection; nobody reads an answer."""


async def read_body(
    scope: Scope, receive: Receive, *, content_length: bytes | None, limit_bytes: int, timeout_s: float
) -> bytes:
    """The whole body. Raises ``ShoalError`` PAYLOAD_TOO_LARGE or CLIENT_CLOSED, ``ClientGone``."""
    declared = int(content_length) if content_length is not None and content_length.isdigit() else None
    if declared is not None and declared > limit_bytes:
        raise _too_large(f"has {declared} bytes", limit_bytes, close=declared > DISCARDED_BYTES)
    whole_body = take_whole_body(scope)
    if whole_body is not None:
        if len(whole_body) > limit_bytes:
            raise _too_large(f"has {len(whole_body)} bytes", limit_bytes, close=False)
        return whole_body
    message = await _next(scope, receive, 0, declared, timeout_s)
    first: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        if len(first) > limit_bytes:
            raise _too_large(f"has {len(first)} bytes", limit_bytes, close=False)
        return first
    whole = bytearray(first)
    while message.get("more_body", False):
        if len(whole) > limit_bytes:
            raise _too_large(f"goes on after {len(whole)} bytes", limit_bytes, close=False)
        message = await _next(scope, receive, len(whole), declared, timeout_s)
        whole += message.get("body", b"")
    if len(whole) > limit_bytes:
        raise _too_large(f"has {len(whole)} bytes", limit_bytes, close=False)
    return bytes(whole)


async def _next(scope: Scope, receive: Receive, have_bytes: int, declared: int | None, timeout_s: float) -> Message:
    try:
        async with asyncio.timeout(timeout_s):
            message = await receive()
    except TimeoutError:
        raise _ended(f"stopped for {timeout_s:g} s", have_bytes, declared) from None
    if message["type"] == "http.disconnect":
        raise ClientGone
    if scope.get(ENDED_EARLY):
        raise _ended("ended early", have_bytes + len(message.get("body", b"")), declared)
    return message


def _ended(what: str, have_bytes: int, declared: int | None) -> ShoalError:
    of = f" of {declared}" if declared is not None else ""
    return ShoalError(
        Code.CLIENT_CLOSED,
        f"The request body {what} after {have_bytes}{of} bytes.",
        hint="Send the whole body; nothing was queued.",
        detail={"close": True},
    )


def _too_large(what: str, limit_bytes: int, *, close: bool) -> ShoalError:
    return ShoalError(
        Code.PAYLOAD_TOO_LARGE,
        f"The request body {what}; the limit is {limit_bytes} bytes.",
        hint="Split the inputs over several requests.",
        detail={"close": close},
    )
