"""One machine with several devices: real worker processes whose devices are simulated."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from sidecar.conformance.checks import run_checks
from sidecar.conformance.worker_checks import WORKER_CHECKS
from sidecar.conformance.worker_stage import WorkerSubject
from tests.integration.sidecar.artifact_server import ArtifactServer, artifact_server
from tests.integration.sidecar.conftest import Bench, until
from tests.integration.sidecar.scripted import embed
from wire import codec, frames, subjects
from wire.jobs import (
    ClassifyInputs,
    EmbeddingInputs,
    EmbeddingOutputs,
    GenerateInputs,
    GenerateOutputs,
    Inputs,
    RerankInputs,
    Task,
)
from wire.registry import ModelRecord
from wire.telemetry import Telemetry


@pytest.fixture
def web() -> Iterator[ArtifactServer]:
    with artifact_server() as server:
        yield server


@asynccontextmanager
async def devices(socket: Path, count: int, **settings: str) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """Worker processes ``sim-0`` … on ``socket``, ended at the end."""
    environment = {
        **os.environ, "SHOAL_SOCKET": str(socket), "SHOAL_SIMULATED_MODEL_LOAD_MS": "1",
        "SHOAL_SIMULATED_FIXED_MS": "10", "SHOAL_SIMULATED_TOKEN_US": "500", "SHOAL_BATCH_TOKENS": "512", **settings,
    }  # fmt: skip
    started = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "workers", "--device", f"simulated:{number}",
            env=environment | {"SHOAL_WORKER_ID": f"sim-{number}"},
        )
        for number in range(count)
    ]  # fmt: skip
    try:
        yield started
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


async def test_a_simulated_worker_conforms(tmp_path: Path, web: ArtifactServer) -> None:
    record = ModelRecord(
        id="m", digest="d" * 64, source="path:none", tasks=[Task.EMBEDDINGS], pool="default", max_tokens=8,
        dimension=3, created=0,
    )  # fmt: skip
    command = [sys.executable, "-m", "workers", "--device", "simulated:one"]
    with contextlib.chdir(tmp_path):
        async with WorkerSubject(command, record, Path(), {"PYTHONPATH": os.pathsep.join(sys.path)}) as subject:
            outcomes = await run_checks(WORKER_CHECKS, subject)
    assert [one for one in outcomes if one.problem] == []


@pytest.mark.parametrize("count", [2, 4])
async def test_one_hot_base_with_many_adapters_uses_all_devices(bench: Bench, web: ArtifactServer, count: int) -> None:
    adapters = [web.add(f"adapter {number}".encode()) for number in range(12)]
    samples: list[Telemetry] = []

    async def take(msg: Msg) -> None:
        samples.append(codec.decode(msg.data, Telemetry))

    await bench.connection.subscribe(subjects.TELEMETRY_ALL, cb=take)
    socket = await bench.sidecar(web_url=web.url)
    async with devices(socket, count):
        await until(lambda: len({one.sample.worker for one in samples if one.sample.models}) == count)
        jobs = [
            await bench.publish(
                adapter=adapters[number % 12], inputs=EmbeddingInputs(texts=["some words " * 20]), tokens=55
            )
            for number in range(240)
        ]
        await until(lambda: len(bench.answers) == len(jobs), 30)
    answers = [bench.answers[job] for job in jobs]
    assert all(len(one) == 1 and one[0].outputs is not None for one in answers)
    by_worker = Counter(one[0].worker for one in answers)
    print(f"{count} devices: {dict(by_worker)}")
    assert len(by_worker) == count
    assert min(by_worker.values()) >= len(jobs) / count / 3
    vectors = {
        one[0].adapter_digest: one[0].outputs.vectors for one in answers if isinstance(one[0].outputs, EmbeddingOutputs)
    }
    assert len(set(vectors.values())) == len(adapters), "each adapter has its own answer, whichever device gave it"
    assert all(one.sample.device.kind == "simulated" for one in samples)
    await bench.expect_empty_queue()


async def test_an_idle_worker_takes_over_what_a_busy_one_has_not_begun(bench: Bench) -> None:
    socket = await bench.sidecar()
    busy = await bench.worker(socket, worker="busy", answerer=lambda job: None)
    jobs = [await bench.publish(tokens=50) for _ in range(40)]
    await until(lambda: len(busy.received) == len(jobs) and busy.settled)
    begun = [job.id for job in busy.received[:10]]
    busy.player.send(frames.Progress(running=begun))
    idle = await bench.worker(socket, worker="idle", room_tokens=100_000)
    await until(lambda: len(idle.received) >= 15)
    cancelled = [job for frame in busy.frames if isinstance(frame, frames.Cancel) for job in frame.jobs]
    assert sorted(cancelled) == sorted(job.id for job in idle.received)
    assert not set(cancelled) & set(begun)
    for job in idle.received:
        assert (await bench.answer(job.id)).outputs is not None
    # What both have had is answered once, whoever is first.
    busy.player.send(frames.Results(results=[embed(job) for job in busy.received]))
    await until(lambda: len(bench.answers) == len(jobs))
    await bench.expect_empty_queue()
    assert all(len(results) == 1 for results in bench.answers.values())


async def test_a_device_that_dies_under_load_costs_no_answer(bench: Bench) -> None:
    socket = await bench.sidecar()
    async with devices(socket, 2) as processes:
        jobs = [await bench.publish(inputs=EmbeddingInputs(texts=["some words " * 20]), tokens=55) for _ in range(150)]
        await until(lambda: len(bench.answers) > 10)
        processes[0].kill()
        await until(lambda: len(bench.answers) == len(jobs), 30)
    assert all(len(results) == 1 and results[0].outputs is not None for results in bench.answers.values())
    await bench.expect_empty_queue()


def ended(bench: Bench, job: str) -> bool:
    return bool(bench.answers.get(job)) and bench.answers[job][-1].final


async def test_every_task_is_answered_and_the_same_text_alike(bench: Bench) -> None:
    socket = await bench.sidecar()
    async with devices(socket, 1):
        asked: list[tuple[Task, Inputs]] = [
            (Task.RERANK, RerankInputs("q", ["a", "b"])),
            (Task.CLASSIFY, ClassifyInputs(["Some text"])),
            (Task.TOKEN_CLASSIFY, ClassifyInputs(["Ada met Grace"])),
            (Task.GENERATE, GenerateInputs(prompt="say", stream=True)),
        ]
        for task, inputs in asked:
            first, second = [await bench.publish(task=task, inputs=inputs) for _ in range(2)]
            for job in (first, second):
                await until(partial(ended, bench, job))
            assert [part.outputs for part in bench.answers[first]] == [part.outputs for part in bench.answers[second]]
            assert bench.answers[first][-1].error is None
        assert len(bench.answers[first]) > 10
        last = bench.answers[first][-1].outputs
        assert isinstance(last, GenerateOutputs)
        assert last.completion_tokens == len(bench.answers[first])
