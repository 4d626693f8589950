"""Jobs from the queue reach workers within their room and are answered once."""

from __future__ import annotations

import asyncio
import statistics
import time

from fabric.payloads import put_payload
from sidecar.broker.puller import COLD_JOBS
from tests.integration.sidecar.conftest import Bench, until
from tests.integration.sidecar.scripted import embed
from wire import codec, frames, subjects
from wire.jobs import Demand, EmbeddingInputs, InputsReference


async def test_a_job_is_answered_and_leaves_the_queue(bench: Bench) -> None:
    worker = await bench.worker(await bench.sidecar())
    job_id = await bench.publish()
    result = await bench.answer(job_id)
    assert result.outputs is not None
    assert result.model_digest == "d" * 64
    await bench.expect_empty_queue()
    assert [job.id for job in worker.received] == [job_id]


async def test_large_inputs_travel_by_reference(bench: Bench) -> None:
    worker = await bench.worker(await bench.sidecar())
    inputs = EmbeddingInputs(texts=["x" * 700_000])
    data = codec.encode(inputs)
    name = await put_payload(bench.js, data)
    found = await bench.publish(inputs=InputsReference(name=name, size_bytes=len(data)))
    missing = await bench.publish(inputs=InputsReference(name="none", size_bytes=3))
    assert (await bench.answer(found)).outputs is not None
    assert worker.received[0].inputs == inputs
    error = (await bench.answer(missing)).error
    assert error is not None
    assert error.code == "queue_unavailable"
    await bench.expect_empty_queue()


async def test_two_workers_of_a_machine_share_its_queue(bench: Bench) -> None:
    socket = await bench.sidecar()
    first = await bench.worker(socket, worker="cpu-0", room_tokens=40, delay_s=0.02)
    second = await bench.worker(socket, worker="cpu-1", room_tokens=40, delay_s=0.02)
    jobs = [await bench.publish() for _ in range(80)]
    await until(lambda: len(bench.answers) == len(jobs))
    assert len(first.received) + len(second.received) == len(jobs)
    assert min(len(first.received), len(second.received)) >= 20


async def test_no_machine_hoards_what_another_could_run(bench: Bench) -> None:
    """A slow machine with room for 4 jobs must never keep more than those from a fast one."""
    slow_socket = await bench.sidecar("slow")
    fast_socket = await bench.sidecar("fast")
    slow = await bench.worker(slow_socket, worker="slow", room_tokens=40, answerer=lambda job: None)
    await asyncio.sleep(0.5)
    fast = await bench.worker(fast_socket, worker="fast", room_tokens=200, delay_s=0.005)
    jobs = [await bench.publish() for _ in range(200)]
    await until(lambda: len(bench.answers) >= len(jobs) - 8, 15)
    await asyncio.sleep(0.3)
    assert 1 <= len(slow.received) <= 5
    assert len(fast.received) + len(slow.received) == len(jobs)


async def test_a_model_no_worker_holds_is_pulled_when_it_is_wanted(bench: Bench) -> None:
    await bench.put_model("model-b")
    worker = await bench.worker(await bench.sidecar())
    await asyncio.sleep(0.2)
    job_id = await bench.publish(model="model-b")
    assert (await bench.answer(job_id, 5)).outputs is not None
    assert worker.received[0].model == "model-b"


async def test_a_crowd_for_a_model_that_loads_leaves_the_room_to_models_that_are_there(bench: Bench) -> None:
    await bench.put_model("model-b")
    worker = await bench.worker(
        await bench.sidecar(), room_tokens=1000, answerer=lambda job: embed(job) if job.model == "model-a" else None
    )
    await bench.answer(await bench.publish())
    cold = [await bench.publish(model="model-b") for _ in range(400)]
    await bench.connection.publish(subjects.demand("default", "model-b"), codec.encode(Demand(400, 4000)))
    await until(lambda: any(job.model == "model-b" for job in worker.received))
    jobs = [await bench.publish() for _ in range(200)]
    await until(lambda: all(job in bench.answers for job in jobs), 10)
    await asyncio.sleep(1.2)
    assert sum(job.model == "model-b" for job in worker.received) <= COLD_JOBS
    worker.models, worker.answerer = ["model-a", "model-b"], embed
    for job in [one for one in worker.received if one.model == "model-b"]:
        worker.player.send(frames.Results(results=[embed(job)]))
        worker.limit_tokens += 10
    worker.pull()
    await until(lambda: all(job in bench.answers for job in cold), 10)


async def test_single_jobs_are_delivered_at_once(bench: Bench) -> None:
    """Low rate: one job at a time, with pauses, over more than one pull expiry."""
    await bench.worker(await bench.sidecar(pull_expires_s=1.0))
    await bench.answer(await bench.publish())
    times_ms = []
    for _ in range(40):
        await asyncio.sleep(0.06)
        begun = time.monotonic()
        job_id = await bench.publish()
        await bench.answer(job_id, 5)
        times_ms.append((bench.answered_at[job_id] - begun) * 1000)
    median, worst = statistics.median(times_ms), max(times_ms)
    print(f"publish to answer at 15 jobs/s: median {median:.2f} ms, worst {worst:.2f} ms")
    assert median < 50
    assert worst < 1000


async def test_a_hint_brings_a_job_of_a_cold_model_without_waiting_for_the_next_look(bench: Bench) -> None:
    await bench.put_model("model-b")
    await bench.worker(await bench.sidecar())
    await bench.answer(await bench.publish())
    waits_s = []
    for _ in range(5):
        begun = time.monotonic()
        job_id = await bench.publish(model="model-b")
        await bench.connection.publish(subjects.demand("default", "model-b"), codec.encode(Demand(1, 10)))
        await bench.answer(job_id, 5)
        waits_s.append(bench.answered_at[job_id] - begun)
    assert statistics.median(waits_s) < 0.5
