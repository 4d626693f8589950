"""Workers that stop giving signs: no new jobs, no blame for what they did not run, no death for our own pause."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import time

import pytest

from sidecar.broker.clock import ServerClock
from tests.integration.sidecar.conftest import Bench, until
from tests.integration.sidecar.scripted import ScriptedWorker
from tests.integration.sidecar.test_faults import FROZEN_WORKER
from wire import codec, frames, subjects
from wire.jobs import Presence

IDLE_THEN_STOPPED = """
    import asyncio, os, signal, sys
    from pathlib import Path
    from sidecar.conformance.player import WorkerPlayer
    from wire import frames

    async def main():
        player = await WorkerPlayer.connect(Path(sys.argv[1]))
        player.hello("stopped")
        player.send(frames.Pull(limit_tokens=100_000, models=["model-a"]))
        for _ in range(8):
            player.send(frames.Progress(running=[]))
            await asyncio.sleep(0.05)
        os.kill(os.getpid(), signal.SIGSTOP)

    asyncio.run(main())
"""


@pytest.mark.parametrize("script", [FROZEN_WORKER, IDLE_THEN_STOPPED], ids=["with jobs", "without jobs"])
async def test_a_silent_worker_gets_nothing_more(bench: Bench, script: str) -> None:
    socket = await bench.sidecar(watchdog_s=60.0)
    offered = asyncio.create_task(first_worker(bench))
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script), str(socket)]) as frozen:  # noqa: ASYNC220
        try:
            await offered
            if script is FROZEN_WORKER:
                await bench.publish(deadline_s=60)
            await asyncio.sleep(4.0)
            healthy = await bench.worker(socket, worker="healthy", room_tokens=1000)
            jobs = [await bench.publish() for _ in range(20)]
            for job_id in jobs:
                assert (await bench.answer(job_id, 5)).outputs is not None
            assert len(healthy.received) == len(jobs)
        finally:
            frozen.kill()


async def test_an_idle_worker_that_stops_is_ended(bench: Bench) -> None:
    socket = await bench.sidecar(watchdog_s=2.0)
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(IDLE_THEN_STOPPED), str(socket)]) as stopped:  # noqa: ASYNC220
        started = time.monotonic()
        while stopped.poll() is None and time.monotonic() - started < 20:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert stopped.poll() == -9


async def test_a_pause_of_the_sidecar_itself_costs_no_worker_its_life(bench: Bench) -> None:
    worker = await bench.worker(await bench.sidecar(watchdog_s=2.5), delay_s=4.0)
    job_id = await bench.publish()
    await until(lambda: worker.received)
    time.sleep(3.0)  # noqa: ASYNC251 - stands for a machine that was suspended
    assert (await bench.answer(job_id)).outputs is not None
    assert not worker.closed.is_set()


async def test_only_what_a_dead_worker_ran_is_under_suspicion(bench: Bench) -> None:
    socket = await bench.sidecar()
    dying = await bench.worker(socket, worker="dying", answerer=lambda job: None)
    jobs = [await bench.publish() for _ in range(10)]
    await until(lambda: len(dying.received) == len(jobs))
    await asyncio.sleep(1.3)
    dying.player.send(frames.Progress(running=jobs[:1]))
    await asyncio.sleep(0.2)
    await dying.stop()
    staying = await bench.worker(socket, worker="staying", delay_s=0.05)
    for job_id in jobs:
        assert (await bench.answer(job_id)).outputs is not None
    alone = [batch.jobs[0].id for batch in staying.batches if len(batch.jobs) == 1]
    assert alone == jobs[:1]
    assert len(staying.batches) < len(jobs)


async def test_of_many_jobs_those_that_ran_for_a_while_are_not_tried_alone(bench: Bench) -> None:
    socket = await bench.sidecar()
    dying = await bench.worker(socket, worker="dying", answerer=lambda job: None)
    jobs = [await bench.publish() for _ in range(8)]
    await until(lambda: len(dying.received) == len(jobs))
    dying.player.send(frames.Progress(running=jobs))
    await asyncio.sleep(1.3)
    newest = await bench.publish()
    await until(lambda: len(dying.received) > len(jobs))
    dying.player.send(frames.Progress(running=[*jobs, newest]))
    await asyncio.sleep(0.2)
    await dying.stop()
    staying = await bench.worker(socket, worker="staying", delay_s=0.05)
    for job_id in (*jobs, newest):
        assert (await bench.answer(job_id)).outputs is not None
    alone = [batch.jobs[0].id for batch in staying.batches if len(batch.jobs) == 1]
    assert alone == [newest]


async def test_a_job_that_kills_without_a_word_is_found_out_all_the_same(bench: Bench) -> None:
    """Never named as running and sent long before: after three lost workers the doubt is over, two more bury it."""
    socket = await bench.sidecar()
    job_id = await bench.publish()
    for lives in range(1, 10):
        worker: ScriptedWorker = await bench.worker(socket, worker=f"life-{lives}", answerer=lambda job: None)
        await until(lambda w=worker: w.received or job_id in bench.answers)  # type: ignore[misc]
        if job_id in bench.answers:
            break
        await asyncio.sleep(1.2)
        worker.player.send(frames.Progress(running=[]))
        await asyncio.sleep(0.1)
        await worker.stop()
    error = bench.answers[job_id][0].error
    assert error is not None
    assert error.code == "poison_job"
    assert 3 <= lives <= 5


async def test_deadlines_are_told_by_the_servers_clock(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(self: ServerClock, server_time: str, sent: float, received: float) -> None:
        self.offset_s = -100.0

    monkeypatch.setattr(ServerClock, "measure", measure)
    worker = await bench.worker(await bench.sidecar())
    job_id = await bench.publish(deadline_s=-70.0)
    assert (await bench.answer(job_id)).outputs is not None
    assert 20 < worker.received[0].deadline - time.time() < 31, "workers tell the time by this machine's clock"


async def first_worker(bench: Bench) -> None:
    """Return once a worker is announced."""
    subscription = await bench.connection.subscribe(subjects.PRESENCE_ALL)
    while codec.decode((await subscription.next_msg(timeout=20)).data, Presence).workers == 0:
        pass
