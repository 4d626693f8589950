"""Reads and writes the registry's KV buckets over one short-lived connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec
from django.conf import settings
from nats.errors import Error as NatsError
from nats.js.errors import APIError, NotFoundError

from fabric.connection import Connection, connect
from fabric.kv import delete_record, list_names, put_record
from fabric.mirror import Mirror
from fabric.topology import TopologyConflict, ensure_buckets
from wire.registry import AdapterRecord, KeyRecord, ModelRecord
from wire.subjects import ADAPTERS_BUCKET, KEYS_BUCKET, MODELS_BUCKET

RECORD_KINDS: dict[str, type[msgspec.Struct]] = {
    MODELS_BUCKET: ModelRecord,
    ADAPTERS_BUCKET: AdapterRecord,
    KEYS_BUCKET: KeyRecord,
}
CONNECT_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 20.0
UNREACHABLE = (NatsError, APIError, NotFoundError, TopologyConflict, OSError, TimeoutError)


class BucketsAway(Exception):
    """NATS or a bucket did not answer; the database keeps what must still be written."""


@asynccontextmanager
async def registry_connection(url: str) -> AsyncIterator[Connection]:
    """A connection with the buckets made. Raises ``BucketsAway`` when NATS does not answer in time."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            connection = await connect(url, name="control plane")
    except UNREACHABLE as error:
        raise BucketsAway(f"no answer from NATS within {CONNECT_TIMEOUT_S} s: {error!r}") from error
    try:
        await ensure_buckets(connection.jetstream(), settings.SHOAL.queue)
        yield connection
    except UNREACHABLE as error:
        raise BucketsAway(repr(error)) from error
    finally:
        await connection.close()


async def write_record(connection: Connection, bucket: str, name: str, record: msgspec.Struct | None) -> None:
    """Put ``record``, or remove ``name`` when there is none."""
    js = connection.jetstream()
    if record is None:
        await delete_record(js, bucket, name)
    else:
        await put_record(js, bucket, name, record)


async def read_records(connection: Connection, bucket: str) -> Mapping[str, msgspec.Struct]:
    """All records of ``bucket`` by name. Unreadable ones are left out, so that a comparison rewrites them."""
    mirror = Mirror(connection, bucket, RECORD_KINDS[bucket])
    await mirror.start()
    try:
        await mirror.wait_ready(READ_TIMEOUT_S)
        return dict(mirror.records)
    finally:
        await mirror.stop()


async def read_names(connection: Connection, bucket: str) -> set[str]:
    """Names in ``bucket``, also of records that cannot be read."""
    return set(await list_names(connection.jetstream(), bucket))
