"""Inputs too large for a queue message: kept in an object store for 10 minutes, fetched by name."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress

from nats.js import JetStreamContext, api
from nats.js.errors import APIError, NotFoundError

from wire.errors import Code, ShoalError
from wire.subjects import PAYLOAD_BUCKET

CHUNK_BYTES = 512 * 1024
STORE_TIMEOUT_S = 20.0
MAX_BYTES_EXCEEDED = 10077


class PayloadMissing(LookupError):
    """The payload was deleted or is older than 10 minutes."""


async def put_payload(js: JetStreamContext, data: bytes) -> str:
    """Store ``data``; its name. Raises ``ShoalError(QUEUE_FULL)`` when full, ``TimeoutError`` after 20 s."""
    name = uuid.uuid4().hex
    meta = api.ObjectMeta(name=name, options=api.ObjectMetaOptions(max_chunk_size=CHUNK_BYTES))
    async with asyncio.timeout(STORE_TIMEOUT_S):
        store = await js.object_store(PAYLOAD_BUCKET)
        try:
            await store.put(name, data, meta=meta)
        except APIError as error:
            if error.err_code == MAX_BYTES_EXCEEDED:
                raise ShoalError(
                    Code.QUEUE_FULL,
                    "The store for large inputs is full.",
                    hint="Send fewer or shorter inputs per request, or try again in some seconds.",
                ) from error
            raise
    return name


async def get_payload(js: JetStreamContext, name: str) -> bytes:
    """The bytes stored as ``name``. Raises ``PayloadMissing``, ``TimeoutError`` after 20 s."""
    async with asyncio.timeout(STORE_TIMEOUT_S):
        try:
            store = await js.object_store(PAYLOAD_BUCKET)
            result = await store.get(name)
        except NotFoundError as error:
            raise PayloadMissing(f"payload {name} is not in the store") from error
    return result.data or b""


async def delete_payload(js: JetStreamContext, name: str) -> None:
    """Remove ``name``; no error when it is gone already."""
    with suppress(NotFoundError):
        async with asyncio.timeout(STORE_TIMEOUT_S):
            store = await js.object_store(PAYLOAD_BUCKET)
            await store.delete(name)
