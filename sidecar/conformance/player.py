"""The worker's side of the socket, frame by frame, for whoever plays a worker."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from sidecar.sockets.framing import pack, read_sidecar_frame
from wire import frames

ANSWER_TIMEOUT_S = 10.0


class WorkerPlayer:
    """One connection to a sidecar's socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, path: Path) -> WorkerPlayer:
        """Connect to the socket at ``path``. Raises ``OSError``."""
        return cls(*await asyncio.open_unix_connection(str(path)))

    def send(self, frame: frames.WorkerFrame) -> None:
        """Send one frame."""
        self._writer.write(pack(frame))

    def send_raw(self, data: bytes) -> None:
        """Send bytes that need not be a frame."""
        self._writer.write(data)

    def hello(self, worker: str, *, protocol: int = frames.PROTOCOL, pid: int | None = None) -> None:
        """Say hello as a CPU worker for embeddings."""
        self.send(
            frames.Hello(
                protocol=protocol,
                worker=worker,
                device="cpu",
                device_name="scripted",
                pid=os.getpid() if pid is None else pid,
                tasks=["embeddings"],
                simulated=True,
            )
        )

    async def receive(self) -> frames.SidecarFrame | None:
        """The sidecar's next frame, ``None`` once it closed the connection. Raises ``FrameError``."""
        return await read_sidecar_frame(self._reader)

    async def expect_close(self, timeout_s: float = ANSWER_TIMEOUT_S) -> str:
        """Read until the sidecar closes; the reason it gave, or an empty text. Raises ``TimeoutError``."""
        reason = ""
        async with asyncio.timeout(timeout_s):
            while (frame := await self.receive()) is not None:
                if isinstance(frame, frames.Refused):
                    reason = frame.reason
        return reason

    async def close(self) -> None:
        """Close the connection without a word, as a process that was killed does."""
        self._writer.transport.abort()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
