"""Frames of the local socket, worker's side: blocking, one reader thread and one writer thread."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import msgspec
import structlog

from wire.codec import WireDecodeError, encode
from wire.frames import LENGTH_BYTES, MAX_FRAME_BYTES, SidecarFrame, WorkerFrame

log = structlog.get_logger("worker.channel")
_decoder = msgspec.msgpack.Decoder(SidecarFrame)


class ChannelClosed(ConnectionError):
    """The sidecar's end is gone."""


class Channel:
    """One connection to the sidecar."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    @classmethod
    def connect(cls, path: Path) -> Channel:
        """Connect to the sidecar's socket. Raises ``OSError`` while nobody listens there."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(path))
        except OSError:
            connection.close()
            raise
        return cls(connection)

    def send(self, frame: WorkerFrame) -> None:
        """Write one frame whole. Raises ``ChannelClosed``."""
        data = encode(frame)
        try:
            self._socket.sendall(len(data).to_bytes(LENGTH_BYTES, "big") + data)
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def receive(self) -> SidecarFrame:
        """The next frame; kinds that this version does not know are skipped.

        Raises ``ChannelClosed``, and ``WireDecodeError`` for a frame above the size limit.
        """
        while True:
            length = int.from_bytes(self._read(LENGTH_BYTES), "big")
            if length > MAX_FRAME_BYTES:
                raise WireDecodeError(f"frame of {length} bytes, the limit is {MAX_FRAME_BYTES}")
            data = self._read(length)
            try:
                return _decoder.decode(data)
            except (msgspec.DecodeError, msgspec.ValidationError) as error:
                log.warning("frame skipped", length_bytes=length, reason=str(error))

    def close(self) -> None:
        """End the connection; a blocked :meth:`receive` in another thread raises ``ChannelClosed``."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self, count: int) -> bytearray:
        data = bytearray(count)
        view = memoryview(data)
        done = 0
        while done < count:
            try:
                got = self._socket.recv_into(view[done:])
            except OSError as error:
                raise ChannelClosed(str(error)) from error
            if got == 0:
                raise ChannelClosed("the sidecar closed the connection")
            done += got
        return data
