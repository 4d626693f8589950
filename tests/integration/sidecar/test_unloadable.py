"""A worker or machine that cannot load a model draws none of its traffic."""

from __future__ import annotations

import asyncio

from nats.aio.msg import Msg

from tests.integration.sidecar.conftest import Bench, until
from wire import codec, subjects
from wire.errors import Code, ErrorInfo
from wire.jobs import Job, Presence, Result


def refuse(job: Job) -> Result:
    return Result(job=job.id, error=ErrorInfo(Code.MODEL_UNLOADABLE, "weights are missing"))


async def test_another_worker_of_the_machine_runs_what_one_cannot_load(bench: Bench) -> None:
    socket = await bench.sidecar()
    broken = await bench.worker(socket, worker="broken", answerer=refuse)
    await bench.worker(socket, worker="whole", delay_s=0.02, room_tokens=40)
    jobs = [await bench.publish() for _ in range(60)]
    for job_id in jobs:
        assert (await bench.answer(job_id)).outputs is not None
    seen = len(broken.received)
    for _ in range(20):
        assert (await bench.answer(await bench.publish())).outputs is not None
    assert len(broken.received) == seen
    await bench.expect_empty_queue()


async def test_another_machine_runs_what_one_cannot_load(bench: Bench) -> None:
    offers: dict[str, list[str]] = {}

    async def take(msg: Msg) -> None:
        presence = codec.decode(msg.data, Presence)
        offers[presence.machine] = presence.models

    await bench.connection.subscribe(subjects.PRESENCE_ALL, cb=take)
    await bench.worker(await bench.sidecar("whole"), worker="whole", delay_s=0.02, room_tokens=40)
    broken = await bench.worker(await bench.sidecar("broken"), worker="broken", answerer=refuse)
    await until(lambda: offers.get("whole") == offers.get("broken") == ["model-a"])
    await asyncio.sleep(0.2)
    jobs = [await bench.publish() for _ in range(100)]
    for job_id in jobs:
        assert (await bench.answer(job_id)).outputs is not None
    assert broken.received, "the broken machine never had a job, so nothing was shown"
    await until(lambda: offers["broken"] == [])
    seen = len(broken.received)
    for _ in range(20):
        assert (await bench.answer(await bench.publish())).outputs is not None
    assert len(broken.received) == seen
    await bench.expect_empty_queue()


async def test_without_another_machine_the_client_learns_why_at_once(bench: Bench) -> None:
    worker = await bench.worker(await bench.sidecar(), answerer=refuse)
    error = (await bench.answer(await bench.publish(), 5)).error
    assert error is not None
    assert error.code is Code.MODEL_UNLOADABLE
    assert error.message == "weights are missing"
    assert len(worker.received) == 1
    await bench.expect_empty_queue()
