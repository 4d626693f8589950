"""Frames of the local socket, worker's side, for one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import msgspec

from wire.codec import encode
from wire.frames import LENGTH_BYTES, MAX_FRAME_BYTES, SidecarFrame, WorkerFrame

_decoder = msgspec.msgpack.Decoder(SidecarFrame)


class Socket:
    """One connection to the sidecar."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, path: Path) -> Socket:
        """Raises ``OSError`` while nobody listens at ``path``."""
        return cls(*await asyncio.open_unix_connection(str(path)))

    def send(self, frame: WorkerFrame | None) -> None:
        """Send one frame; ``None`` sends nothing."""
        if frame is not None and not self._writer.is_closing():
            data = encode(frame)
            self._writer.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)

    async def receive(self) -> SidecarFrame | None:
        """The next frame, ``None`` at the end. Raises ``ValueError`` for what is none."""
        try:
            length = int.from_bytes(await self._reader.readexactly(LENGTH_BYTES), "big")
            if length > MAX_FRAME_BYTES:
                raise ValueError(f"frame of {length} bytes, the limit is {MAX_FRAME_BYTES}")
            return _decoder.decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def close(self) -> None:
        """Send what is on its way and close."""
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            async with asyncio.timeout(2):
                await self._writer.drain()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
