"""Two hundred updates a second into a client that does not read: web's memory stays flat, the newest word arrives."""

from __future__ import annotations

import asyncio
import time

import msgspec
from channels_redis.pubsub import RedisPubSubChannelLayer

from fleet import payloads
from fleet.telemetry.bridge import EVENT, GROUP
from fleet.telemetry.points import Second
from fleet.telemetry.states import Update, worker_state
from tests.integration.fleet.site import Site
from tests.unit.fleet.samples import resident, telemetry
from wire.codec import encode

UPDATES = 1000
PER_SECOND = 200
WORKERS = 5
ADAPTERS = 60
MARK = 987_654
ALLOWED_GROWTH_BYTES = 24 * 1024 * 1024


def update(number: int) -> bytes:
    """One message of the bridge, about 40 kB; each one differs."""
    now = time.time()
    states = []
    for worker in range(WORKERS):
        adapters = [resident(f"{worker:02d}{slot:062d}", slot=slot, hits=number) for slot in range(ADAPTERS)]
        spoken = telemetry(machine="slow", worker=f"w{worker}", at=now, requests=number, adapters=adapters)
        second = Second(int(now))
        second.add(spoken.sample)
        states.append(worker_state(spoken, point=second.point(), received=now))
    return encode(Update(now, states))


async def test_a_slow_client_costs_nothing_and_misses_nothing_that_is_still_true(site: Site) -> None:
    layer = RedisPubSubChannelLayer(hosts=[site.env["REDIS_URL"]], prefix="shoal:channels")

    async def send(count: int, first: int) -> None:
        for number in range(first, first + count):
            await layer.group_send(GROUP, {"type": EVENT, "body": update(number)})
            await asyncio.sleep(1 / PER_SECOND)

    try:
        async with site.connect(max_queue=1) as socket:
            # warm up until the first of these updates is here, so that what is measured is growth and not the start
            warm = asyncio.create_task(send(100, 1))
            while "slow.w0" not in str(await socket.recv()):
                pass
            await warm
            before = site.web_memory_bytes()
            await send(UPDATES, 1000)
            growth = site.web_memory_bytes() - before
            await send(1, MARK)
            messages = 0
            async with asyncio.timeout(60):
                while True:
                    messages += 1
                    message = msgspec.json.decode(await socket.recv(), type=payloads.Message)
                    if isinstance(message, payloads.Delta) and any(
                        worker.figures.requests_per_s == MARK for worker in message.workers
                    ):
                        break
    finally:
        await layer.flush()
    assert growth < ALLOWED_GROWTH_BYTES, f"web grew by {growth / 1e6:.1f} MB"
    assert messages < UPDATES / 4, f"{messages} messages were kept for a client that did not read"
