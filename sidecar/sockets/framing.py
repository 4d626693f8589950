"""Frames on a byte stream: 4 bytes of length, big-endian, then MessagePack. Bounded on the way in."""

from __future__ import annotations

import asyncio

import msgspec

from wire import codec, frames
from wire.frames import LENGTH_BYTES, MAX_FRAME_BYTES

_worker_frames: msgspec.msgpack.Decoder[frames.WorkerFrame] = msgspec.msgpack.Decoder(frames.WorkerFrame)
_sidecar_frames: msgspec.msgpack.Decoder[frames.SidecarFrame] = msgspec.msgpack.Decoder(frames.SidecarFrame)


class FrameError(ValueError):
    """The peer sent something that is no frame of this protocol."""


def pack(frame: object) -> bytes:
    """The bytes of one frame. Raises ``FrameError`` above ``MAX_FRAME_BYTES``."""
    body = codec.encode(frame)
    if len(body) > MAX_FRAME_BYTES:
        raise FrameError(f"frame of {len(body)} bytes, {MAX_FRAME_BYTES} are allowed")
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


async def read_worker_frame(reader: asyncio.StreamReader) -> frames.WorkerFrame | None:
    """The worker's next frame, or ``None`` at the end of the stream. Raises ``FrameError``."""
    body = await _read_body(reader)
    try:
        return None if body is None else _worker_frames.decode(body)
    except msgspec.MsgspecError as error:
        raise FrameError(f"not a frame of this protocol: {error}") from error


async def read_sidecar_frame(reader: asyncio.StreamReader) -> frames.SidecarFrame | None:
    """The sidecar's next frame, or ``None`` at the end of the stream. Raises ``FrameError``."""
    body = await _read_body(reader)
    try:
        return None if body is None else _sidecar_frames.decode(body)
    except msgspec.MsgspecError as error:
        raise FrameError(f"not a frame of this protocol: {error}") from error


async def _read_body(reader: asyncio.StreamReader) -> bytes | None:
    try:
        length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
        if not 0 < length <= MAX_FRAME_BYTES:
            raise FrameError(f"frame of {length} bytes announced, 1 to {MAX_FRAME_BYTES} are allowed")
        return await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise FrameError("the stream ended in the middle of a frame") from error
        return None
    except ConnectionError:
        return None
