"""Records of the KV buckets by name; keys are encoded here and nowhere else."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from nats.js import JetStreamContext
from nats.js.errors import KeyNotFoundError, NoKeysError

from wire import codec
from wire.subjects import decode_token, encode_token

T = TypeVar("T")


async def put_record(js: JetStreamContext, bucket: str, name: str, struct: msgspec.Struct) -> int:
    """Store ``struct`` under ``name``; the revision. Raises ``BucketNotFoundError`` without the bucket."""
    store = await js.key_value(bucket)
    return await store.put(encode_token(name), codec.encode(struct))


async def get_record(js: JetStreamContext, bucket: str, name: str, kind: type[T]) -> T | None:
    """The record stored under ``name``, or ``None``. Raises ``WireDecodeError`` for foreign bytes."""
    store = await js.key_value(bucket)
    try:
        entry = await store.get(encode_token(name))
    except KeyNotFoundError:
        return None
    return codec.decode(entry.value or b"", kind)


async def delete_record(js: JetStreamContext, bucket: str, name: str) -> None:
    """Remove ``name``; no error when it is not there."""
    store = await js.key_value(bucket)
    await store.purge(encode_token(name))


async def list_names(js: JetStreamContext, bucket: str) -> list[str]:
    """Names in ``bucket``, sorted, decoded."""
    store = await js.key_value(bucket)
    try:
        keys = await store.keys()
    except NoKeysError:
        return []
    return sorted(decode_token(key) for key in keys)
