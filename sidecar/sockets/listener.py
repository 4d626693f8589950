"""The Unix socket that workers connect to: mode 600, one sidecar per path, each connection read by its own task."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path
from typing import Protocol

import structlog

from sidecar import metrics
from sidecar.sockets.connection import WorkerConnection
from sidecar.sockets.framing import FrameError, pack, read_worker_frame
from sidecar.sockets.peer import Peer
from wire import frames

log = structlog.get_logger(__name__)

HELLO_TIMEOUT_S = 10.0
MAX_WORKER_NAME = 200


class Crew(Protocol):
    """Who takes what workers say."""

    def joined(self, connection: WorkerConnection) -> None:
        """A worker said hello."""

    def take(self, connection: WorkerConnection, frame: frames.WorkerFrame) -> None:
        """A worker said something else. Raises ``FrameError`` when it may not."""

    def left(self, connection: WorkerConnection, reason: str) -> None:
        """The connection is over."""


class Listener:
    """Accepts workers until closed."""

    def __init__(self, path: Path, crew: Crew) -> None:
        self._path = path
        self._crew = crew
        self._server: asyncio.Server | None = None
        self._numbers = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen. Raises ``OSError`` naming the path when another sidecar listens there."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _remove_stale(self._path)
            # Between bind and chmod the file would be open to others.
            before = os.umask(0o177)
            try:
                sock.bind(str(self._path))
            finally:
                os.umask(before)
            self._server = await asyncio.start_unix_server(self._accept, sock=sock)
        except BaseException:
            sock.close()
            raise
        log.info("listening for workers", socket=str(self._path))

    async def close(self) -> None:
        """Stop listening and end all connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            self._path.unlink(missing_ok=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        peer = Peer.of(writer.get_extra_info("socket"))
        try:
            hello = await self._greet(reader, writer)
            if hello is not None:
                await self._serve(reader, writer, hello, peer)
        except asyncio.CancelledError:
            # The listener closes; asyncio's server would log a cancelled connection as an error.
            pass
        finally:
            peer.close()
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> frames.Hello | None:
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                frame = await read_worker_frame(reader)
            if frame is None:
                return None
            return _checked_hello(frame)
        except TimeoutError:
            reason = f"no hello within {HELLO_TIMEOUT_S:.0f} s"
        except FrameError as error:
            reason = str(error)
        log.warning("worker refused", reason=reason)
        metrics.WORKERS_LOST.labels(reason="refused").inc()
        with contextlib.suppress(OSError):
            writer.write(pack(frames.Refused(reason=reason)))
        return None

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hello: frames.Hello, peer: Peer
    ) -> None:
        self._numbers += 1
        now = asyncio.get_running_loop().time()
        connection = WorkerConnection(self._numbers, hello, peer, writer, heard=now, alive=now)
        self._crew.joined(connection)
        reason = "the sidecar stops"
        try:
            reason = await self._read(reader, connection)
        finally:
            self._crew.left(connection, connection.closing or reason)

    async def _read(self, reader: asyncio.StreamReader, connection: WorkerConnection) -> str:
        try:
            while True:
                frame = await read_worker_frame(reader)
                if frame is None:
                    return "goodbye" if connection.said_goodbye else "connection lost"
                self._crew.take(connection, frame)
        except FrameError as error:
            log.warning("malformed frame, closing the connection", worker=connection.worker, error=str(error))
            connection.close(str(error))
            return "malformed frame"


def _checked_hello(frame: frames.WorkerFrame) -> frames.Hello:
    if not isinstance(frame, frames.Hello):
        raise FrameError(f"the first frame must be hello, not {type(frame).__name__.lower()}")
    if frame.protocol != frames.PROTOCOL:
        raise FrameError(f"protocol {frame.protocol} is not spoken here, only {frames.PROTOCOL}")
    if not 0 < len(frame.worker) <= MAX_WORKER_NAME:
        raise FrameError(f"a worker's id has 1 to {MAX_WORKER_NAME} characters")
    return frame


def _remove_stale(path: Path) -> None:
    """Remove a socket file that nobody listens on. Raises ``OSError`` for any other file, or a live listener."""
    if not path.exists() and not path.is_symlink():
        return
    if not path.is_socket():
        raise OSError(f"{path} exists and is no socket; remove it or set SHOAL_SOCKET")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError as error:
            raise OSError(f"{path} is there and cannot be tried: {error.strerror}") from error
    raise OSError(f"another sidecar listens on {path}; stop it or set SHOAL_SOCKET")
