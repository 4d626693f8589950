"""Two machines on one queue: adapters stay where they are, and nobody waits for a machine that is full or gone."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator

import pytest
from nats.aio.msg import Msg

from sidecar.queueing.lanes import home_lanes
from tests.integration.sidecar.artifact_server import ArtifactServer, artifact_server
from tests.integration.sidecar.conftest import Bench, until
from tests.integration.sidecar.scripted import ScriptedWorker
from wire import codec, subjects
from wire.jobs import Demand, Presence


@pytest.fixture
def web() -> Iterator[ArtifactServer]:
    with artifact_server() as server:
        yield server


async def two_machines(bench: Bench, web: ArtifactServer, **options: object) -> list[ScriptedWorker]:
    """Two sidecars that know of each other, with a worker each."""
    heard: defaultdict[str, int] = defaultdict(int)

    async def take(msg: Msg) -> None:
        presence = codec.decode(msg.data, Presence)
        heard[presence.machine] += bool(presence.models)

    await bench.connection.subscribe(subjects.PRESENCE_ALL, cb=take)
    workers = []
    for machine in ("m1", "m2"):
        socket = await bench.sidecar(machine, web_url=web.url)
        workers.append(await bench.worker(socket, worker=machine, **options))
    before = dict(heard)
    await until(lambda: all(heard[machine] >= before.get(machine, 0) + 2 for machine in ("m1", "m2")))
    return workers


async def test_adapters_stay_on_one_machine_and_base_rows_use_both(bench: Bench, web: ArtifactServer) -> None:
    first, second = await two_machines(bench, web, delay_s=0.002)
    adapters = [web.add(f"adapter {number}".encode()) for number in range(16)]
    jobs = []
    for number in range(320):
        jobs.append(await bench.publish(adapter=adapters[number % 16], machines=2))
        if number % 4 == 0:
            jobs.append(await bench.publish(machines=2))
    await until(lambda: len(bench.answers) == len(jobs))
    where: defaultdict[str | None, set[str]] = defaultdict(set)
    for worker in (first, second):
        for job in worker.received:
            where[job.adapter_digest].add(worker.worker)
    alone = [digest for digest in adapters if len(where[digest]) == 1]
    print(f"{len(alone)} of {len(adapters)} adapters ran on one machine alone")
    assert len(alone) >= 14
    assert where[None] == {"m1", "m2"}
    assert {next(iter(where[digest])) for digest in alone} == {"m1", "m2"}, "both are home to some"
    assert sum(web.gets.values()) <= len(adapters) + 2
    await bench.expect_empty_queue()


async def test_a_machine_with_room_takes_what_the_home_of_a_lane_has_no_room_for(
    bench: Bench, web: ArtifactServer
) -> None:
    workers = await two_machines(bench, web, room_tokens=100)
    digest = web.add(b"hot adapter")
    await bench.answer(await bench.publish(adapter=digest, machines=2))
    lane = subjects.lane_of(digest, 2)
    home, other = sorted(workers, key=lambda one: lane not in home_lanes("model-a", one.worker, {"m1", "m2"}))
    for worker in workers:
        worker.received.clear()
    home.answerer = lambda job: None
    jobs = [await bench.publish(adapter=digest, machines=2) for _ in range(40)]
    await bench.connection.publish(subjects.demand("default", "model-a"), codec.encode(Demand(40, 400)))
    await until(lambda: len(other.received) >= 25)
    assert 0 < len(home.received) <= 11
    assert sum(job in bench.answers for job in jobs) >= 20


async def test_lanes_are_emptied_by_a_machine_that_is_left_alone(bench: Bench, web: ArtifactServer) -> None:
    await two_machines(bench, web)
    adapters = [web.add(f"adapter {number}".encode()) for number in range(12)]
    await asyncio.gather(*(bench.publish(adapter=digest, machines=2) for digest in adapters))
    await until(lambda: len(bench.answers) == 12)
    await bench.stop_sidecar("m2")
    late = [await bench.publish(adapter=digest, machines=2) for digest in adapters]
    for job in late:
        assert (await bench.answer(job, 8)).outputs is not None
    await bench.expect_empty_queue()
