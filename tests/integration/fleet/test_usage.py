"""What gateways say of requests, through the bridges into Redis and the database: each word counts once."""

from __future__ import annotations

import asyncio
import time

import nats
import pytest
from asgiref.sync import sync_to_async

from controlplane.accounts.models import ApiKey, Team
from fleet.telemetry.usage import UsageIntake, read_usage
from loras.metrics.histogram import BUCKETS
from loras.models import UsageMinute
from tests.integration.fleet.test_bridge import bridging, until
from wire.codec import encode
from wire.subjects import usage
from wire.usage import TargetUsage, Usage


def spoken(at: float, requests: int) -> Usage:
    latency = [requests, *[0] * (BUCKETS - 1)]
    target = TargetUsage("own", "own/titles@3", requests, latency, 3.0 * requests, tokens=10, alias="live")
    return Usage("gateway-1", at, [target], keys=["shoal_abc123"])


def stored() -> list[tuple[str, str, int, int]]:
    return list(UsageMinute.objects.values_list("target", "alias", "requests", "tokens"))


@pytest.mark.django_db(transaction=True)
async def test_two_bridges_count_each_word_once_and_note_the_keys(live: str, nats_url: str) -> None:
    team = await Team.objects.acreate(name="own")
    key = await ApiKey.objects.acreate(team=team, name="app", prefix="shoal_abc123", sha256="0" * 64)
    client = await nats.connect(nats_url)
    # both words belong to one minute
    now = time.time()
    now -= 3 if now % 60 > 57 else 0

    async def speak() -> None:
        # a bridge that listens late hears it again; said twice it still counts once
        while True:
            for at, requests in ((now, 5), (now + 0.5, 7)):
                await client.publish(usage("gateway-1"), encode(spoken(at, requests)))
            await client.publish(usage("gateway-1"), b"no usage")
            await asyncio.sleep(0.2)

    one = bridging(nats_url, live, name="one", usage_every_s=0.2)
    two = bridging(nats_url, live, name="two", usage_every_s=0.2)
    async with one, two:
        speaker = asyncio.create_task(speak())
        await until(lambda: ("own/titles@3", "live", 12, 20) in stored())
        await asyncio.sleep(1.5)
        assert await sync_to_async(stored)() == [("own/titles@3", "live", 12, 20)]
        speaker.cancel()
    await client.close()
    await key.arefresh_from_db()
    assert key.last_used_at is not None
    read = await sync_to_async(read_usage)(since=now + 0.1, now=time.time() + 1)
    assert read is not None
    assert [message.targets[0].requests for message in read] == [7]


def test_what_waits_is_bounded_and_strange_clocks_are_put_right() -> None:
    intake = UsageIntake()
    for number in range(2_500):
        intake.add(spoken(1000.0 + number, 1), received=1000.0 + number)
    assert len(intake.pending) == 2_000
    fresh = UsageIntake()
    fresh.add(spoken(5.0, 1), received=600_000.0)
    assert [minute for minute, _ in fresh.pending] == [600_000]
    assert fresh.take_key_ids() == {"shoal_abc123"}
    assert fresh.take_key_ids() == set()
