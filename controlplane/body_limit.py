"""Bounds a request's body while it travels, whether a view reads it meanwhile or Django spools it to disk first."""

from __future__ import annotations

import errno
from typing import Any, Protocol

import structlog
from django.conf import settings

from controlplane.api.errors import error_body
from controlplane.upload_types import CHUNK_TYPE
from wire.codec import encode_json
from wire.errors import Code, ErrorInfo

log = structlog.get_logger("controlplane.body")

# room for multipart boundaries, field names and the other fields of an upload
ENVELOPE_BYTES = 1024 * 1024
SMALL_BODY_BYTES = 1024 * 1024
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_ROOM = "The server has no room left for this request."
_NO_ROOM_HINT = "Tell the people who run it; nothing of the request was kept."


class Asgi(Protocol):
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...


class BodyLimit:
    """Answers 413 from ``Content-Length`` before a byte is read, and counts the bytes that come without it."""

    def __init__(self, application: Asgi) -> None:
        self.application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name.lower(): value for name, value in scope["headers"]}
        limit = _limit_bytes(headers.get(b"content-type", b""))
        announced = headers.get(b"content-length", b"")
        if announced.isdigit() and int(announced) > limit:
            await _refuse(send, limit, int(announced))
            return
        counter = _Counter(receive, send, limit)
        try:
            await self.application(scope, counter.receive, counter.send)
        except OSError as error:
            # a body that does not stream is spooled before any view runs; a full disk shows there first
            if counter.answered or error.errno not in DISK_FULL:
                raise
            log.exception("no room for a request body", path=scope["path"])
            await _answer(send, ErrorInfo(Code.STORAGE_FULL, _NO_ROOM, hint=_NO_ROOM_HINT))
            return
        if counter.exceeded and not counter.answered:
            await _refuse(send, limit, None)


class _Counter:
    """Counts what was received; past the limit the application sees a client that went away."""

    def __init__(self, receive: Any, send: Any, limit: int) -> None:
        self._receive, self._send, self._limit = receive, send, limit
        self._seen_bytes = 0
        self.exceeded = False
        self.answered = False

    async def receive(self) -> Any:
        message = await self._receive()
        if message["type"] == "http.request":
            self._seen_bytes += len(message.get("body", b""))
            if self._seen_bytes > self._limit:
                self.exceeded = True
                return {"type": "http.disconnect"}
        return message

    async def send(self, message: Any) -> None:
        self.answered = True
        await self._send(message)


def _limit_bytes(content_type: bytes) -> int:
    kind = content_type.lower()
    if kind.startswith(b"multipart/form-data"):
        return int(settings.SHOAL.upload_max_bytes) + ENVELOPE_BYTES
    if kind.startswith(CHUNK_TYPE):
        return int(settings.SHOAL.upload_max_bytes)
    return SMALL_BODY_BYTES


async def _refuse(send: Any, limit: int, announced: int | None) -> None:
    size = f"announces {announced} bytes" if announced is not None else f"is longer than {limit} bytes"
    hint = "Upload the adapter's own files only, without checkpoints and optimizer states."
    await _answer(send, ErrorInfo(Code.PAYLOAD_TOO_LARGE, f"The body {size}; at most {limit} are accepted.", hint=hint))


async def _answer(send: Any, info: ErrorInfo) -> None:
    body = encode_json(error_body(info))
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        # the rest of the body is not read, so the connection cannot be used again
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": info.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
