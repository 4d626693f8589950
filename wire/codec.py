"""One MessagePack and one JSON codec for every struct that crosses a process boundary."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()
_json_encoder = msgspec.json.Encoder()


class WireDecodeError(ValueError):
    """Bytes that are not the struct they were said to be."""


def encode(value: Any) -> bytes:
    """MessagePack bytes of one wire struct."""
    return _encoder.encode(value)


def decode(data: bytes | memoryview, kind: type[T]) -> T:
    """The struct of type ``kind`` in ``data``; unknown fields are ignored. Raises ``WireDecodeError``."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise WireDecodeError(str(error)) from error


def encode_json(value: Any) -> bytes:
    """Compact JSON bytes of one wire struct."""
    return _json_encoder.encode(value)


def decode_json(data: bytes | str, kind: type[T]) -> T:
    """The struct of type ``kind`` in JSON ``data``; unknown fields are ignored. Raises ``WireDecodeError``."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise WireDecodeError(str(error)) from error
