"""Reading back what is kept in Redis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from wire.codec import WireDecodeError, decode

T = TypeVar("T")


def decode_known(found: Mapping[bytes | str, bytes | str], kind: type[T]) -> list[T]:
    """Values of a hash as ``kind``; one written by another release is left out: it is rewritten or
    expires."""
    items: list[T] = []
    for data in found.values():
        if isinstance(data, str):
            # our connections decode nothing
            continue
        try:
            items.append(decode(data, kind))
        except WireDecodeError:
            continue
    return items
