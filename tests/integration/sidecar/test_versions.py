"""Versions with weights of their own: their file comes with their jobs, and what is left when they go is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.aio.msg import Msg
from nats.js.errors import NotFoundError

from fabric.kv import delete_record
from fabric.payloads import put_payload
from sidecar.broker import removed
from tests.integration.sidecar.artifact_server import ArtifactServer, artifact_server
from tests.integration.sidecar.conftest import Bench, until
from tests.integration.sidecar.scripted import embed
from wire import codec, frames, subjects
from wire.errors import Code, ErrorInfo
from wire.jobs import GenerateInputs, GenerateOutputs, InputsReference, Job, Presence, RerankInputs, Result, Task


@pytest.fixture
def web() -> Iterator[ArtifactServer]:
    with artifact_server() as server:
        yield server


async def test_the_file_of_a_version_is_fetched_once_and_comes_with_its_jobs(bench: Bench, web: ArtifactServer) -> None:
    web.delay_s = 0.2
    digest = web.add(b"weights" * 1000)
    await bench.put_version("team/merged@3", digest)
    worker = await bench.worker(await bench.sidecar(web_url=web.url))
    jobs = [await bench.publish(model="team/merged@3") for _ in range(10)]
    base = await bench.publish()
    assert (await bench.answer(base)).outputs is not None
    assert not set(jobs) & set(bench.answers), "a version that is not here must not delay the base model"
    for job_id in jobs:
        assert (await bench.answer(job_id)).outputs is not None
    assert web.gets == {digest: 1}
    paths = {batch.artifacts[digest] for batch in worker.batches if batch.artifacts}
    assert [Path(path).name for path in paths] == [digest]
    await bench.expect_empty_queue()


async def test_a_corrupt_file_of_a_version_is_fetched_once_more(bench: Bench, web: ArtifactServer) -> None:
    digest = web.add(b"weights")
    await bench.put_version("team/merged@3", digest)

    def answer(job: Job) -> Result:
        if web.gets[digest] < 2:
            return Result(job=job.id, error=ErrorInfo(Code.ARTIFACT_CORRUPT, "the file is broken"))
        return embed(job)

    await bench.worker(await bench.sidecar(web_url=web.url), answerer=answer)
    assert (await bench.answer(await bench.publish(model="team/merged@3"))).outputs is not None
    assert web.gets == {digest: 2}


async def test_presence_stays_small_with_many_versions(bench: Bench) -> None:
    said: list[bytes] = []

    async def take(msg: Msg) -> None:
        said.append(msg.data)

    for number in range(300):
        await bench.put_version(f"team/adapter@{number}", f"{number:064x}")
    await bench.connection.subscribe(subjects.PRESENCE_ALL, cb=take)
    worker = await bench.worker(await bench.sidecar())
    await until(lambda: said and codec.decode(said[-1], Presence).models == ["model-a"])
    assert codec.decode(said[-1], Presence).version_tasks == [Task.EMBEDDINGS]
    assert len(said[-1]) < 300
    (models,) = [frame for frame in worker.frames if isinstance(frame, frames.Models)][-1:]
    assert len(models.models) == 301
    consumers = await bench.js.consumers_info(subjects.WORK_STREAM)
    assert len(consumers) <= 1, "a consumer is made when its version is asked for, not before"


async def test_jobs_of_a_removed_version_are_answered_and_its_consumer_goes(
    bench: Bench, web: ArtifactServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removed, "GRACE_S", 1.0)
    digest = web.add(b"weights")
    await bench.put_version("team/gone@1", digest)
    await bench.worker(await bench.sidecar(web_url=web.url))
    assert (await bench.answer(await bench.publish(model="team/gone@1"))).outputs is not None
    durable = subjects.work_consumer("default", "team/gone@1")
    await bench.js.consumer_info(subjects.WORK_STREAM, durable)
    await delete_record(bench.js, subjects.MODELS_BUCKET, "team/gone@1")
    await asyncio.sleep(0.2)
    late = await bench.publish(model="team/gone@1")
    error = (await bench.answer(late, 10)).error
    assert error is not None
    assert error.code is Code.MODEL_NOT_FOUND
    assert "team/gone@1 was removed" in error.message
    await bench.expect_empty_queue()
    for _ in range(100):
        try:
            await bench.js.consumer_info(subjects.WORK_STREAM, durable)
        except NotFoundError:
            break
        await asyncio.sleep(0.1)
    else:
        raise AssertionError("the consumer of a removed version is still there")


async def test_a_version_that_cannot_be_loaded_is_refused_at_once_while_that_is_known(
    bench: Bench, web: ArtifactServer
) -> None:
    digest = web.add(b"weights")
    await bench.put_version("team/broken@1", digest)

    def refuse(job: Job) -> Result:
        return Result(job=job.id, error=ErrorInfo(Code.MODEL_UNLOADABLE, "not enough memory"))

    worker = await bench.worker(await bench.sidecar(web_url=web.url), answerer=refuse)
    for _ in range(4):
        error = (await bench.answer(await bench.publish(model="team/broken@1"), 5)).error
        assert error is not None
        assert (error.code, error.message) == (Code.MODEL_UNLOADABLE, "not enough memory")
    assert len(worker.received) == 1
    worker.answerer = embed
    assert (await bench.answer(await bench.publish())).outputs is not None


async def test_large_inputs_of_any_task_travel_by_reference(bench: Bench) -> None:
    worker = await bench.worker(await bench.sidecar(), answerer=lambda job: Result(job=job.id))
    inputs = RerankInputs(query="q", documents=["x" * 700_000])
    data = codec.encode(inputs)
    name = await put_payload(bench.js, data)
    await bench.answer(await bench.publish(inputs=InputsReference(name=name, size_bytes=len(data)), task=Task.RERANK))
    assert worker.received[0].inputs == inputs


async def test_parts_of_a_streamed_answer_arrive_at_once_and_in_order(bench: Bench) -> None:
    worker = await bench.worker(await bench.sidecar(), answerer=lambda job: None)
    job_id = await bench.publish(task=Task.GENERATE, inputs=GenerateInputs(prompt="a", stream=True))
    await until(lambda: worker.received)

    def part(number: int, *, final: bool) -> Result:
        return Result(job=job_id, outputs=GenerateOutputs(f"w{number} "), number=number, final=final)

    for number in range(50):
        worker.player.send(frames.Results(results=[part(number, final=False)]))
    await until(lambda: len(bench.answers.get(job_id, [])) == 50)
    assert await bench.work_left() == 1, "parts acknowledge nothing"
    worker.player.send(frames.Results(results=[part(50, final=True)]))
    await until(lambda: len(bench.answers[job_id]) == 51)
    assert [one.number for one in bench.answers[job_id]] == list(range(51))
    assert [one.final for one in bench.answers[job_id]] == [False] * 50 + [True]
    await bench.expect_empty_queue()
