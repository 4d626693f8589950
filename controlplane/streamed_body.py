"""Lets uploads stream: their view reads the body while it travels, where Django would spool all of it to disk first."""

from __future__ import annotations

import asyncio
import io
import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

from django import setup
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, ASGIRequest
from django.db import close_old_connections

from controlplane.upload_types import CHUNK_TYPE

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# a client that sends nothing for so long is taken to be gone: it holds a thread
SILENCE_S = 60.0


class StreamedBody(io.RawIOBase):
    """The body of one request as a blocking file for that request's own thread, fed from ASGI's ``receive``.

    Holds at most one message that was not read yet; the server stops reading from the socket meanwhile. Reading raises
    ``ConnectionError`` when the client goes away before the end, so that half a body is never taken for a whole one.
    """

    def __init__(self, receive: Any) -> None:
        super().__init__()
        self.receive = receive
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._unread = memoryview(b"")
        self._began = self._cut = False
        self.ended = asyncio.Event()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill ``buffer``, less only at the end or at a cut; one trip to the event loop, not one per message."""
        if threading.get_ident() == self._loop_thread:
            raise RuntimeError("a streamed body is read in its request's thread: the event loop would wait for itself")
        if not self._began:
            self._began = True
            # the key was looked up; a slow upload must not keep its database connection for minutes
            close_old_connections()
        try:
            return asyncio.run_coroutine_threadsafe(self._fill(memoryview(buffer).cast("B")), self._loop).result()
        except CancelledError:
            raise ConnectionAbortedError("the server stops") from None

    async def listen_for_disconnect(self) -> None:
        """Returns when the whole body was read, after which ``receive`` can only tell that the client went away."""
        await self.ended.wait()
        if self._cut:
            raise RequestAborted

    async def _fill(self, buffer: memoryview) -> int:
        filled = 0
        while filled < len(buffer):
            if not self._unread:
                if self.ended.is_set():
                    break
                await self._next_message()
                continue
            part = self._unread[: len(buffer) - filled]
            buffer[filled : filled + len(part)] = part
            self._unread = self._unread[len(part) :]
            filled += len(part)
        # what came before the cut is handed out first: a resumable upload keeps it
        if self._cut and not filled:
            raise ConnectionResetError("the client went away before the end of the body")
        return filled

    async def _next_message(self) -> None:
        try:
            async with asyncio.timeout(SILENCE_S):
                message = await self.receive()
        except TimeoutError:
            message = {"type": "http.disconnect"}
        self._cut = message["type"] == "http.disconnect"
        self._unread = memoryview(message.get("body", b""))
        if self._cut or not message.get("more_body", False):
            self.ended.set()


class StreamedRequest(ASGIRequest):
    """A request that tells its upload handlers when the body breaks off, which Django's parser does not."""

    def read(self, *args: Any, **kwargs: Any) -> bytes:
        try:
            return super().read(*args, **kwargs)
        except OSError:
            for handler in self.upload_handlers:
                handler.upload_interrupted()
            raise


class StreamingHandler(ASGIHandler):
    """Django's handler, but chunks of resumable uploads, and form uploads that announce their length, begin before
    their body has arrived."""

    request_class = StreamedRequest

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        body: Any = StreamedBody(receive) if _streams(scope) else receive
        await super().handle(scope, body, send)

    async def read_body(self, receive: Any) -> Any:
        return receive if isinstance(receive, StreamedBody) else await super().read_body(receive)

    async def listen_for_disconnect(self, receive: Any) -> None:
        if isinstance(receive, StreamedBody):
            await receive.listen_for_disconnect()
            receive = receive.receive
        await super().listen_for_disconnect(receive)


def streaming_application() -> StreamingHandler:
    """``django.core.asgi.get_asgi_application`` with this handler."""
    setup(set_prefix=False)
    return StreamingHandler()


def _streams(scope: Any) -> bool:
    """Without a length Django's form parser reads nothing, so such a body is counted and spooled as ever; a chunk is
    read by its own view until it ends."""
    headers = {name.lower(): value for name, value in scope["headers"]}
    kind: bytes = headers.get(b"content-type", b"").lower()
    if kind.startswith(CHUNK_TYPE):
        return scope["method"] in {"PATCH", "POST"}
    known_length: bool = headers.get(b"content-length", b"").isdigit()
    return kind.startswith(b"multipart/form-data") and known_length and scope["method"] == "POST"
