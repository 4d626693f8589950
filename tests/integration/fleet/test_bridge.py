"""The bridge on real NATS and Valkey: history, roll-ups, two at once, and every outside part going away."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.layers import get_channel_layer
from pytest_django.fixtures import Settings

from fleet.models import UtilizationMinute, Worker
from fleet.telemetry.bridge import GROUP, Bridge
from fleet.telemetry.points import Second
from fleet.telemetry.reader import LiveReader
from fleet.telemetry.states import Update
from fleet.telemetry.writer import LiveWriter
from tests.integration.fleet.site import Feed, feeding
from tests.servers import ServerProcess, valkey_server
from tests.unit.fleet.samples import device, sample
from wire.codec import decode


@contextlib.asynccontextmanager
async def bridging(
    nats_url: str, redis_url: str, *, name: str = "one", usage_every_s: float = 5.0
) -> AsyncIterator[Bridge]:
    """A bridge in this process; a bridge that died fails the test on the way out."""
    stop = asyncio.Event()
    bridge = Bridge(nats_url, redis_url, name=name, rollups_every_s=0.5, usage_every_s=usage_every_s)
    task = asyncio.create_task(bridge.run(stop))
    try:
        yield bridge
        assert not task.done()
    finally:
        stop.set()
        await task


async def until(condition: Callable[[], object], *, timeout_s: float = 40.0) -> None:
    """Return once ``condition`` holds."""
    async with asyncio.timeout(timeout_s):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110  (what Valkey holds has no event)
            await asyncio.sleep(0.1)


def seconds_of(url: str, worker: str = "box.cpu") -> list[int]:
    """Seconds in a worker's ring, read afresh."""
    return [point.at for point in LiveReader(url).read().points.get(worker, [])]


async def test_two_bridges_write_each_second_once_and_one_of_them_sends(live: str, nats_url: str) -> None:
    layer = get_channel_layer()
    assert layer is not None
    channel = await layer.new_channel()
    await layer.group_add(GROUP, channel)
    heard: list[int] = []

    async def listen() -> None:
        while True:
            update = decode((await layer.receive(channel))["body"], Update)
            heard.extend(state.point.at for state in update.workers)

    listener = asyncio.create_task(listen())
    try:
        async with bridging(nats_url, live, name="one"), feeding(Feed(nats_url)):
            async with bridging(nats_url, live, name="two"):
                await until(lambda: len(heard) >= 5)
                assert len(heard) == len(set(heard))
            # whichever is left goes on, as leader within three seconds
            count = len(heard)
            await until(lambda: len(heard) >= count + 3)
        ring = seconds_of(live)
        assert ring == sorted(set(ring))
        assert set(heard) <= set(ring)
    finally:
        listener.cancel()
        await layer.flush()


# no database mark: every query of the bridge fails, as with a database that is away
async def test_history_survives_an_absent_valkey_a_restarted_nats_and_no_database(
    settings: Settings, nats: ServerProcess, nats_url: str, tmp_path: Path
) -> None:
    with valkey_server(tmp_path / "valkey") as valkey:
        url = f"redis://127.0.0.1:{valkey.port}/0"
        settings.SHOAL = settings.SHOAL.model_copy(update={"redis_url": url, "nats_url": nats_url})
        settings.CHANNEL_LAYERS = {
            "default": {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer", "CONFIG": {"hosts": [url]}}
        }
        async with bridging(nats_url, url), feeding(Feed(nats_url)):
            await until(lambda: len(seconds_of(url)) >= 2)
            await asyncio.to_thread(valkey.stop)
            gone = int(time.time())
            await asyncio.sleep(4)
            await asyncio.to_thread(valkey.start)
            # seconds in which Valkey was away are there afterwards, and new ones arrive
            await until(lambda: len([at for at in seconds_of(url) if at > gone]) >= 6)
            during = [at for at in seconds_of(url) if gone < at <= gone + 3]
            assert len(during) >= 2
            await asyncio.to_thread(nats.restart)
            restarted = int(time.time())
            await until(lambda: any(at > restarted + 1 for at in seconds_of(url)))
        layer = get_channel_layer()
        assert layer is not None
        await layer.flush()


@pytest.mark.django_db(transaction=True)
async def test_rollups_of_whole_minutes_survive_a_restart_of_the_bridge(live: str, nats_url: str) -> None:
    minute = int(time.time()) // 60 * 60 - 240
    writer = LiveWriter(live)
    seconds = []
    for offset in range(90):
        second = Second(minute + offset)
        # utilization is known in the first minute only
        known = device(utilization=0.25 if offset < 30 else 0.75) if offset < 60 else device()
        batches: dict[str, Any] = (
            {"batch_rows": [4, 8], "batch_adapters": [2, 2], "queue_ms": [1.0, 3.0]} if offset < 60 else {}
        )
        second.add(sample(at=float(minute + offset), requests=2, tokens=5, busy=0.5, device=known, **batches))
        seconds.append(second)
    await writer.write([], [], {"box.cpu": seconds})
    await writer.close()

    def rows() -> list[tuple[int, float | None, float | None, int, int]]:
        found = UtilizationMinute.objects.order_by("minute")
        return [(int(r.minute.timestamp()), r.utilization, r.busy, r.requests, r.tokens) for r in found]

    expected = [(minute, 0.5, 0.5, 120, 300), (minute + 60, None, 0.5, 60, 150)]
    for _ in range(2):
        async with bridging(nats_url, live), feeding(Feed(nats_url)):
            limit = time.monotonic() + 30
            found = await sync_to_async(rows)()
            while found[:2] != expected and time.monotonic() < limit:
                await asyncio.sleep(0.2)
                found = await sync_to_async(rows)()
            assert found[:2] == expected
    minutes = UtilizationMinute.objects.order_by("minute")
    figures = minutes.values_list("batch_rows", "batch_adapters", "queue_p50_ms", "queue_p95_ms")
    assert [row async for row in figures[:2]] == [(6.0, 2.0, 1.0, 3.0), (None, None, None, None)]
    worker = await Worker.objects.aget(machine="box", worker_id="cpu")
    assert (worker.state, worker.device["kind"]) == ("ready", "cpu")
    layer = get_channel_layer()
    assert layer is not None
    await layer.flush()
