"""Checks of a worker command: the suite plays the sidecar."""

from __future__ import annotations

import asyncio
import time
import uuid

from sidecar.conformance.checks import Check, require
from sidecar.conformance.worker_stage import WorkerStage, WorkerSubject, staged
from wire import frames
from wire.errors import Code
from wire.jobs import EmbeddingInputs, EmbeddingOutputs, Job, Result, Task

FLOAT_BYTES = 4


def job_for(subject: WorkerSubject, *texts: str, adapter: str | None = None, deadline_s: float = 60.0) -> Job:
    """A job on the subject's model."""
    now = time.time()
    return Job(
        id=uuid.uuid4().hex,
        task=Task.EMBEDDINGS,
        pool=subject.model.pool,
        model=subject.model.id,
        model_digest=subject.model.digest,
        inputs=EmbeddingInputs(texts=list(texts)),
        tenant="conformance",
        token_estimate=4 * len(texts),
        deadline=now + deadline_s,
        published=now,
        reply="reply.conformance",
        adapter_digest=adapter,
    )


async def ready(stage: WorkerStage, subject: WorkerSubject) -> None:
    """Greet the worker and wait until it has room."""
    await stage.expect(frames.Hello)
    stage.send(frames.Models(models=[subject.model]))
    await room(stage, 1)


async def room(stage: WorkerStage, tokens: int) -> None:
    """Wait until the worker's limit is ``tokens`` or more."""
    while stage.limit_tokens < tokens:
        await stage.expect(frames.Pull)


async def results_of(stage: WorkerStage, jobs: list[Job]) -> dict[str, Result]:
    """Results of all ``jobs``; a job answered twice is no conformance."""
    found: dict[str, Result] = {}
    while len(found) < len(jobs):
        for result in (await stage.expect(frames.Results)).results:
            require(result.job not in found, f"job {result.job} was answered twice")
            require(result.job in {job.id for job in jobs}, f"job {result.job} was never sent")
            found[result.job] = result
    return found


async def hello_comes_first(subject: WorkerSubject) -> None:
    async with staged(subject) as stage:
        async with asyncio.timeout(90):
            frame = await stage.receive()
        require(isinstance(frame, frames.Hello), f"the first frame was {type(frame).__name__}")
        hello = frame if isinstance(frame, frames.Hello) else None
        require(hello and hello.protocol == frames.PROTOCOL, "hello names another protocol")
        require(hello and hello.pid == stage.process.pid, "hello's pid is not the process's")
        require(hello and hello.worker and hello.tasks, "hello names no worker or no task")


async def jobs_are_answered_and_credit_returns(subject: WorkerSubject) -> None:
    async with staged(subject) as stage:
        await ready(stage, subject)
        jobs = [job_for(subject, "one text"), job_for(subject, "two", "texts in one job")]
        stage.send(frames.Batch(jobs=jobs))
        results = await results_of(stage, jobs)
        for job in jobs:
            _require_vectors(subject, job, results[job.id])
        limit, sent = stage.limit_tokens, sum(job.token_estimate for job in jobs)
        await room(stage, max(limit, sent + 1))


async def a_bad_adapter_fails_its_own_job(subject: WorkerSubject) -> None:
    async with staged(subject) as stage:
        await ready(stage, subject)
        good, bad = job_for(subject, "good"), job_for(subject, "bad", adapter="0" * 64)
        missing = str(subject.directory / "missing")
        stage.send(frames.Batch(jobs=[bad, good], artifacts={"0" * 64: missing}))
        results = await results_of(stage, [bad, good])
        _require_vectors(subject, good, results[good.id])
        error = results[bad.id].error
        require(error is not None, "a job with an adapter that is not there was answered with outputs")
        require(
            error is not None
            and error.code in (Code.ARTIFACT_UNAVAILABLE, Code.ARTIFACT_CORRUPT, Code.ADAPTER_UNLOADABLE),
            f"the error's code is {error.code if error else None}",
        )


async def an_expired_job_is_not_served(subject: WorkerSubject) -> None:
    async with staged(subject) as stage:
        await ready(stage, subject)
        late, good = job_for(subject, "late", deadline_s=-1.0), job_for(subject, "good")
        stage.send(frames.Batch(jobs=[late, good]))
        results = await results_of(stage, [late, good])
        error = results[late.id].error
        require(error is not None and error.code is Code.DEADLINE_EXCEEDED, f"answered with {results[late.id]!r}")


async def a_cancelled_job_takes_no_credit(subject: WorkerSubject) -> None:
    async with staged(subject) as stage:
        await ready(stage, subject)
        cancelled = [job_for(subject, "cancelled") for _ in range(20)]
        good = job_for(subject, "good")
        before = stage.limit_tokens
        sent = sum(job.token_estimate for job in [*cancelled, good])
        # In one write: the cancel is there before most of the jobs can have started.
        stage.send(frames.Batch(jobs=[*cancelled, good]), frames.Cancel(jobs=[job.id for job in cancelled]))
        async with asyncio.timeout(90):
            while True:
                results = (await stage.expect(frames.Results)).results
                if any(result.job == good.id for result in results):
                    break
        await room(stage, before + sent)


async def commands_are_answered(subject: WorkerSubject) -> None:
    async with staged(subject) as stage:
        await ready(stage, subject)
        digest = "1" * 64
        missing = str(subject.directory / "missing")
        stage.send(frames.Ensure(model=subject.model.id, digest=digest, path=missing))
        outcome = await stage.expect(frames.Ensured)
        require(outcome.digest == digest, "ensured names another digest")
        require(outcome.error is not None, "an adapter that is not there was ensured")
        for frame in (frames.Pin(digest=digest), frames.Evict(digest=digest)):
            stage.send(frame)
            require((await stage.expect(frames.Ensured)).digest == digest, "ensured names another digest")


async def a_drained_worker_finishes_and_resumes(subject: WorkerSubject) -> None:
    async with staged(subject) as stage:
        await ready(stage, subject)
        first = job_for(subject, "before the drain")
        stage.send(frames.Batch(jobs=[first]), frames.Drain())
        _require_vectors(subject, first, (await results_of(stage, [first]))[first.id])
        stage.send(frames.Drain(resume=True))
        await room(stage, first.token_estimate + 1)
        second = job_for(subject, "after the drain")
        stage.send(frames.Batch(jobs=[second]))
        _require_vectors(subject, second, (await results_of(stage, [second]))[second.id])


async def a_lost_sidecar_is_found_again(subject: WorkerSubject) -> None:
    async with staged(subject) as stage:
        await ready(stage, subject)
        hello = await stage.next_connection()
        require(hello.protocol == frames.PROTOCOL, "the second hello names another protocol")
        stage.send(frames.Models(models=[subject.model]))
        await room(stage, 1)
        job = job_for(subject, "after the restart")
        stage.send(frames.Batch(jobs=[job]))
        _require_vectors(subject, job, (await results_of(stage, [job]))[job.id])


async def an_orderly_end_says_goodbye(subject: WorkerSubject) -> None:
    async with staged(subject) as stage:
        await ready(stage, subject)
        status = await stage.terminate()
        require(any(isinstance(frame, frames.Goodbye) for frame in stage.heard), "SIGTERM ended it without goodbye")
        require(status == 0, f"exit status {status} after SIGTERM")


def _require_vectors(subject: WorkerSubject, job: Job, result: Result) -> None:
    outputs = result.outputs
    require(isinstance(outputs, EmbeddingOutputs), f"no vectors for {job.id}: {result.error}")
    if isinstance(outputs, EmbeddingOutputs) and isinstance(job.inputs, EmbeddingInputs):
        size = len(job.inputs.texts) * outputs.dimension * FLOAT_BYTES
        require(outputs.dimension == subject.model.dimension, f"dimension {outputs.dimension}")
        require(len(outputs.vectors) == size, f"{len(outputs.vectors)} bytes of vectors, expected {size}")
    require(result.model_digest == job.model_digest, "the result names another model digest")


WORKER_CHECKS = [
    Check("hello is the first frame and tells the truth", hello_comes_first),
    Check("every job is answered once, and its room comes back", jobs_are_answered_and_credit_returns),
    Check("an adapter that cannot load fails its own job only", a_bad_adapter_fails_its_own_job),
    Check("a job whose deadline passed is answered deadline_exceeded", an_expired_job_is_not_served),
    Check("the room of cancelled jobs comes back", a_cancelled_job_takes_no_credit),
    Check("ensure, pin and evict are answered with ensured", commands_are_answered),
    Check("a drained worker finishes what it has and can resume", a_drained_worker_finishes_and_resumes),
    Check("a worker whose sidecar went away connects again", a_lost_sidecar_is_found_again),
    Check("SIGTERM is answered with goodbye and exit status 0", an_orderly_end_says_goodbye),
]
