"""Mirrors on a real nats-server: every fault ends with the bucket's present content in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from nats.js import JetStreamContext

from fabric.connection import Connection, connect
from fabric.kv import delete_record, get_record, list_names, put_record
from fabric.mirror import Mirror
from fabric.payloads import PayloadMissing, delete_payload, get_payload, put_payload
from fabric.topology import QueueSettings, ensure_buckets
from tests.integration.gateway.waiting import until
from tests.servers import ServerProcess
from wire import codec
from wire.registry import KeyRecord, Scope
from wire.subjects import KEYS_BUCKET

SETTINGS = QueueSettings()


def key(number: int) -> KeyRecord:
    return KeyRecord(id=str(number), team="t", scopes=[Scope.INFER])


@pytest.fixture
async def connection(nats_url: str) -> AsyncIterator[Connection]:
    client = await connect(nats_url, name="test")
    yield client
    await client.close()


@pytest.fixture
def js(connection: Connection) -> JetStreamContext:
    return connection.jetstream()


@pytest.fixture
async def mirror(connection: Connection) -> AsyncIterator[Mirror[KeyRecord]]:
    made: Mirror[KeyRecord] = Mirror(connection, KEYS_BUCKET, KeyRecord)
    await made.start()
    yield made
    await made.stop()


async def test_records_come_change_and_go(js: JetStreamContext, mirror: Mirror[KeyRecord]) -> None:
    seen: list[tuple[str, KeyRecord | None]] = []
    mirror.on_change(lambda name, record: seen.append((name, record)))
    await ensure_buckets(js, SETTINGS)
    await put_record(js, KEYS_BUCKET, "team/a.b", key(1))
    await mirror.wait_ready(10)
    await put_record(js, KEYS_BUCKET, "team/a.b", key(2))
    await put_record(js, KEYS_BUCKET, "other", key(3))
    await until(lambda: mirror.records == {"team/a.b": key(2), "other": key(3)})
    assert await list_names(js, KEYS_BUCKET) == ["other", "team/a.b"]
    assert await get_record(js, KEYS_BUCKET, "team/a.b", KeyRecord) == key(2)

    await delete_record(js, KEYS_BUCKET, "team/a.b")
    await until(lambda: mirror.records == {"other": key(3)})
    assert await list_names(js, KEYS_BUCKET) == ["other"]
    assert await get_record(js, KEYS_BUCKET, "team/a.b", KeyRecord) is None
    assert seen[-1] == ("team/a.b", None)


async def test_thousands_of_keys_are_read_at_the_start(js: JetStreamContext, connection: Connection) -> None:
    await ensure_buckets(js, SETTINGS)
    for number in range(3000):
        await connection.publish(f"$KV.{KEYS_BUCKET}.k{number}", codec.encode(key(number)))
    await (await js.key_value(KEYS_BUCKET)).put("last", codec.encode(key(3000)))
    mirror: Mirror[KeyRecord] = Mirror(connection, KEYS_BUCKET, KeyRecord)
    await mirror.start()
    await mirror.wait_ready(20)
    assert mirror.records.pop("last") == key(3000)
    assert mirror.records == {f"k{number}": key(number) for number in range(3000)}
    await mirror.stop()


async def test_change_made_while_the_mirror_was_cut_off_is_seen(
    js: JetStreamContext, mirror: Mirror[KeyRecord], nats: ServerProcess, nats_url: str
) -> None:
    await ensure_buckets(js, SETTINGS)
    await put_record(js, KEYS_BUCKET, "stays", key(1))
    await put_record(js, KEYS_BUCKET, "goes", key(1))
    await until(lambda: len(mirror.records) == 2)
    for number in range(2, 4):
        nats.restart()
        other = await connect(nats_url, name="control plane")
        await put_record(other.jetstream(), KEYS_BUCKET, "stays", key(number))
        await put_record(other.jetstream(), KEYS_BUCKET, "goes", key(number))
        await delete_record(other.jetstream(), KEYS_BUCKET, "goes")
        await other.close()
        await until(lambda number=number: mirror.records == {"stays": key(number)})  # type: ignore[misc]
    await put_record(js, KEYS_BUCKET, "after", key(9))
    await until(lambda: mirror.records.get("after") == key(9), 5)


async def test_bucket_deleted_and_rebuilt(js: JetStreamContext, mirror: Mirror[KeyRecord]) -> None:
    await ensure_buckets(js, SETTINGS)
    await put_record(js, KEYS_BUCKET, "old", key(1))
    await until(lambda: "old" in mirror.records)

    await js.delete_key_value(KEYS_BUCKET)
    await until(lambda: not mirror.following)
    assert mirror.records == {"old": key(1)}, "known records are kept while the bucket is away"

    await ensure_buckets(js, SETTINGS)
    await put_record(js, KEYS_BUCKET, "new", key(2))
    await until(lambda: mirror.records == {"new": key(2)})


async def test_consumer_deleted_behind_the_mirror(js: JetStreamContext, mirror: Mirror[KeyRecord]) -> None:
    await ensure_buckets(js, SETTINGS)
    await mirror.wait_ready(10)
    for consumer in await js.consumers_info(f"KV_{KEYS_BUCKET}"):
        await js.delete_consumer(f"KV_{KEYS_BUCKET}", consumer.name)
    await put_record(js, KEYS_BUCKET, "unseen", key(1))
    await until(lambda: "unseen" in mirror.records)


async def test_bytes_that_are_no_record_remove_the_record(js: JetStreamContext, mirror: Mirror[KeyRecord]) -> None:
    await ensure_buckets(js, SETTINGS)
    await put_record(js, KEYS_BUCKET, "k", key(1))
    await until(lambda: "k" in mirror.records)
    await (await js.key_value(KEYS_BUCKET)).put("k", b"\xc1 not msgpack")
    await until(lambda: "k" not in mirror.records)
    await put_record(js, KEYS_BUCKET, "k", key(2))
    await until(lambda: mirror.records == {"k": key(2)})


async def test_not_ready_without_the_bucket(mirror: Mirror[KeyRecord]) -> None:
    with pytest.raises(TimeoutError, match=KEYS_BUCKET):
        await mirror.wait_ready(0.5)
    assert not mirror.ready


async def test_payloads_survive_a_restart_and_are_deleted(
    js: JetStreamContext, connection: Connection, nats: ServerProcess
) -> None:
    await ensure_buckets(js, SETTINGS)
    data = bytes(range(256)) * 8192
    name = await put_payload(js, data)
    assert await get_payload(js, name) == data
    nats.restart()
    await until(lambda: connection.is_connected and connection.stats["reconnects"] == 1)
    assert await get_payload(js, name) == data
    await delete_payload(js, name)
    await delete_payload(js, name)
    with pytest.raises(PayloadMissing):
        await get_payload(js, name)
