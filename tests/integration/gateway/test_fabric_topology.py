"""Streams, consumers and buckets on a real nats-server: made, updated, refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from fabric.connection import Connection, connect
from fabric.topology import QueueSettings, TopologyConflict, ensure_buckets, ensure_consumer, ensure_streams
from tests.integration.gateway.waiting import until
from tests.servers import ServerProcess
from wire import subjects

SETTINGS = QueueSettings(max_messages=100, max_bytes=1024 * 1024)


@pytest.fixture
async def connection(nats_url: str) -> AsyncIterator[Connection]:
    client = await connect(nats_url, name="test")
    yield client
    await client.close()


@pytest.fixture
def js(connection: Connection) -> JetStreamContext:
    return connection.jetstream()


async def test_second_call_changes_nothing(js: JetStreamContext) -> None:
    for _ in range(2):
        await ensure_streams(js, SETTINGS)
        await ensure_buckets(js, SETTINGS)
        durable = await ensure_consumer(js, "default", "org/model", SETTINGS)
    info = await js.stream_info(subjects.WORK_STREAM)
    assert (info.config.max_msgs, info.config.max_bytes) == (100, 1024 * 1024)
    assert info.config.discard == "new"
    assert info.config.storage == "memory"
    assert (await js.stream_info("KV_keys")).config.storage == "file"
    assert durable == subjects.work_consumer("default", "org/model")
    consumers = await js.consumers_info(subjects.WORK_STREAM)
    assert [consumer.name for consumer in consumers] == [durable]


async def test_settings_changed_between_releases_are_taken_over(js: JetStreamContext) -> None:
    await ensure_streams(js, SETTINGS)
    await ensure_consumer(js, "default", "org/model", SETTINGS)
    await js.publish(subjects.work("default", "org/model"), b"waits")

    newer = replace(SETTINGS, max_messages=7, max_bytes=4096, ack_wait_s=3.0, max_deliver=2)
    await ensure_streams(js, newer)
    durable = await ensure_consumer(js, "default", "org/model", newer)

    stream = await js.stream_info(subjects.WORK_STREAM)
    assert (stream.config.max_msgs, stream.config.max_bytes) == (7, 4096)
    assert stream.state.messages == 1
    consumer = await js.consumer_info(subjects.WORK_STREAM, durable)
    assert (consumer.config.ack_wait, consumer.config.max_deliver) == (3.0, 2)


async def test_what_nats_cannot_change_is_refused_with_both_values(js: JetStreamContext) -> None:
    await ensure_streams(js, SETTINGS)
    with pytest.raises(TopologyConflict, match="storage is memory, wanted file"):
        await ensure_streams(js, replace(SETTINGS, storage="file"))
    assert (await js.stream_info(subjects.WORK_STREAM)).config.storage == "memory"


async def test_replicas_that_one_server_cannot_give_are_refused(js: JetStreamContext) -> None:
    with pytest.raises(TopologyConflict, match="WORK"):
        await ensure_streams(js, replace(SETTINGS, replicas=3))


async def test_memory_stream_lost_in_a_restart_is_made_again(
    js: JetStreamContext, connection: Connection, nats: ServerProcess
) -> None:
    await ensure_streams(js, SETTINGS)
    await ensure_consumer(js, "default", "org/model", SETTINGS)
    nats.restart()
    await until(lambda: connection.is_connected and connection.stats["reconnects"] == 1)
    with pytest.raises(NotFoundError):
        await js.stream_info(subjects.WORK_STREAM)
    await ensure_streams(js, SETTINGS)
    await ensure_consumer(js, "default", "org/model", SETTINGS)
    ack = await js.publish(subjects.work("default", "org/model"), b"job")
    assert ack.stream == subjects.WORK_STREAM
