"""The sidecar's side of the socket for one worker command: starts it, keeps its frames, ends it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from sidecar.conformance.checks import require
from sidecar.sockets.framing import pack, read_worker_frame
from wire import frames
from wire.registry import ModelRecord

F = TypeVar("F")
START_TIMEOUT_S = 90.0


Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(slots=True)
class WorkerSubject:
    """A worker command (SHOAL_SOCKET is added to its environment), and a base model it can load.

    One process serves all checks that do not end it: each takes the worker's next connection.
    """

    command: list[str]
    model: ModelRecord
    directory: Path
    environment: dict[str, str] = field(default_factory=dict)
    process: asyncio.subprocess.Process | None = None
    connections: asyncio.Queue[Pair] = field(default_factory=asyncio.Queue)
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)
    _server: asyncio.Server | None = None

    async def __aenter__(self) -> WorkerSubject:
        path = self.directory / "stage.sock"
        self._server = await asyncio.start_unix_server(self._accept, path=str(path))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def running(self) -> asyncio.subprocess.Process:
        """The worker, started if it is not there or has ended."""
        if self.process is None or self.process.returncode is not None:
            path = str(self.directory / "stage.sock")
            self.process = await asyncio.create_subprocess_exec(
                *self.command, env={**os.environ, **self.environment, "SHOAL_SOCKET": path}
            )
        return self.process

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        await self.connections.put((reader, writer))


@dataclass(slots=True)
class WorkerStage:
    """One connection of the worker under test."""

    process: asyncio.subprocess.Process
    connections: asyncio.Queue[Pair]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    limit_tokens: int = 0
    heard: list[frames.WorkerFrame] = field(default_factory=list)

    def send(self, *sent: frames.SidecarFrame) -> None:
        """Send frames in one write."""
        self.writer.write(b"".join(pack(frame) for frame in sent))

    async def receive(self) -> frames.WorkerFrame | None:
        """The worker's next frame; checks on the way that its credit never goes down."""
        frame = await read_worker_frame(self.reader)
        if isinstance(frame, frames.Pull):
            require(
                frame.limit_tokens >= self.limit_tokens,
                f"limit_tokens went down from {self.limit_tokens} to {frame.limit_tokens}",
            )
            self.limit_tokens = frame.limit_tokens
        if frame is not None:
            self.heard.append(frame)
        return frame

    async def expect(self, kind: type[F], timeout_s: float = START_TIMEOUT_S) -> F:
        """The next frame of ``kind``."""
        async with asyncio.timeout(timeout_s):
            while True:
                frame = await self.receive()
                require(frame is not None, f"the worker closed the connection, expected {kind.__name__}")
                if isinstance(frame, kind):
                    return frame

    async def next_connection(self) -> frames.Hello:
        """Close this connection and take the worker's next one; its hello."""
        self.writer.close()
        async with asyncio.timeout(START_TIMEOUT_S):
            self.reader, self.writer = await self.connections.get()
        self.limit_tokens = 0
        return await self.expect(frames.Hello)

    async def terminate(self) -> int:
        """SIGTERM the worker; its exit status."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(START_TIMEOUT_S):
            while await self.receive() is not None:
                pass
            return await self.process.wait()


@asynccontextmanager
async def staged(subject: WorkerSubject) -> AsyncIterator[WorkerStage]:
    """The worker's next connection; closed at the end, so that the next check finds it connecting again."""
    process = await subject.running()
    async with asyncio.timeout(START_TIMEOUT_S):
        reader, writer = await subject.connections.get()
    stage = WorkerStage(process, subject.connections, reader, writer)
    try:
        yield stage
    finally:
        stage.writer.close()
