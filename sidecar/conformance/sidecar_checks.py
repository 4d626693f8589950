"""Checks of a sidecar: the suite plays a worker on its socket, and the queue's publisher behind it."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from nats.aio.msg import Msg

from fabric.connection import Connection
from sidecar.conformance.checks import Check, require
from sidecar.conformance.player import ANSWER_TIMEOUT_S, WorkerPlayer
from sidecar.sockets.framing import pack
from wire import codec, frames, subjects
from wire.jobs import EmbeddingInputs, EmbeddingOutputs, GenerateOutputs, Job, Result, Task
from wire.registry import ModelRecord

F = TypeVar("F")
WORKER = "conformance"
PARTS = 5


@dataclass(frozen=True, slots=True)
class SidecarSubject:
    """A running sidecar: its socket, and the NATS server its jobs come from."""

    socket: Path
    connection: Connection


@asynccontextmanager
async def worker_of(subject: SidecarSubject, name: str = WORKER) -> AsyncIterator[WorkerPlayer]:
    """A connected worker that has said hello."""
    player = await WorkerPlayer.connect(subject.socket)
    try:
        player.hello(name)
        yield player
    finally:
        await player.close()


async def expect(player: WorkerPlayer, kind: type[F]) -> F:
    """The next frame of ``kind``; others before it are passed over."""
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        while True:
            frame = await player.receive()
            require(frame is not None, f"the connection was closed, expected {kind.__name__}")
            if isinstance(frame, kind):
                return frame


async def _model(player: WorkerPlayer) -> ModelRecord:
    models = (await expect(player, frames.Models)).models
    while not models:
        models = (await expect(player, frames.Models)).models
    return models[0]


async def _publish(subject: SidecarSubject, model: ModelRecord, tokens: int, deadline_s: float = 20.0) -> str:
    job_id, now = uuid.uuid4().hex, time.time()
    job = Job(
        id=job_id,
        task=Task.EMBEDDINGS,
        pool=model.pool,
        model=model.id,
        model_digest=model.digest,
        inputs=EmbeddingInputs(texts=["a text"]),
        tenant=WORKER,
        token_estimate=tokens,
        deadline=now + deadline_s,
        published=now,
        reply=subjects.reply(WORKER, job_id),
    )
    await subject.connection.jetstream().publish(subjects.work(model.pool, model.id), codec.encode(job))
    return job_id


async def _receive(player: WorkerPlayer, count: int) -> list[Job]:
    jobs: list[Job] = []
    while len(jobs) < count:
        jobs.extend((await expect(player, frames.Batch)).jobs)
    return jobs


def _answer(player: WorkerPlayer, jobs: list[Job]) -> None:
    outputs = EmbeddingOutputs(dimension=1, vectors=b"\0\0\x80\x3f", tokens=2)
    player.send(
        frames.Results(results=[Result(job=job.id, model_digest=job.model_digest, outputs=outputs) for job in jobs])
    )


async def hello_is_answered_with_models(subject: SidecarSubject) -> None:
    async with worker_of(subject) as player:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            frame = await player.receive()
        require(isinstance(frame, frames.Models), f"the first frame was {frame!r}")


async def frames_may_come_in_pieces(subject: SidecarSubject) -> None:
    player = await WorkerPlayer.connect(subject.socket)
    try:
        hello = frames.Hello(frames.PROTOCOL, WORKER, "cpu", "scripted", 1, ["embeddings"])
        for byte in pack(hello):
            player.send_raw(bytes([byte]))
            await asyncio.sleep(0)
        await expect(player, frames.Models)
    finally:
        await player.close()


async def another_protocol_is_refused(subject: SidecarSubject) -> None:
    player = await WorkerPlayer.connect(subject.socket)
    try:
        player.hello(WORKER, protocol=frames.PROTOCOL + 1)
        require(await player.expect_close(), "closed without a reason")
    finally:
        await player.close()


async def malformed_frames_are_refused(subject: SidecarSubject) -> None:
    oversized = (frames.MAX_FRAME_BYTES + 1).to_bytes(frames.LENGTH_BYTES, "big")
    for data in (b"\0\0\0\0", oversized, b"\0\0\0\x03abc", pack(frames.Cancel(jobs=[]))):
        async with worker_of(subject) as player:
            player.send_raw(data)
            require(await player.expect_close(), f"closed without a reason after {data[:8].hex()}")


async def a_second_hello_is_refused(subject: SidecarSubject) -> None:
    async with worker_of(subject) as player:
        player.hello(WORKER)
        require(await player.expect_close(), "closed without a reason")


async def the_same_worker_again_replaces_the_older(subject: SidecarSubject) -> None:
    async with worker_of(subject) as older:
        await expect(older, frames.Models)
        async with worker_of(subject) as newer:
            await expect(newer, frames.Models)
            require(await older.expect_close(), "the older connection was closed without a reason")


async def jobs_stay_within_the_credit(subject: SidecarSubject) -> None:
    async with worker_of(subject) as player:
        model = await _model(player)
        wanted = {await _publish(subject, model, 10) for _ in range(6)}
        player.send(frames.Pull(limit_tokens=25, models=[model.id]))
        first = await _receive(player, 3)
        try:
            async with asyncio.timeout(0.7):
                extra = await player.receive()
            require(not isinstance(extra, frames.Batch), "jobs were sent beyond the limit of 25 tokens")
        except TimeoutError:
            pass
        _answer(player, first)
        player.send(frames.Pull(limit_tokens=1000, models=[model.id]))
        rest = await _receive(player, 3)
        _answer(player, rest)
        require({job.id for job in first + rest} == wanted, "other jobs came than were published")


async def unstarted_jobs_of_a_goodbye_run_elsewhere(subject: SidecarSubject) -> None:
    async with worker_of(subject, "leaving") as leaving:
        model = await _model(leaving)
        leaving.send(frames.Pull(limit_tokens=100, models=[model.id]))
        job_id = await _publish(subject, model, 10)
        await _receive(leaving, 1)
        async with worker_of(subject) as staying:
            staying.send(frames.Pull(limit_tokens=100, models=[model.id]))
            leaving.send(frames.Goodbye(unstarted=[job_id]))
            jobs = await _receive(staying, 1)
            require(jobs[0].id == job_id, "another job came")
            _answer(staying, jobs)


async def a_lost_worker_returns_its_jobs(subject: SidecarSubject) -> None:
    async with worker_of(subject, "dying") as dying:
        model = await _model(dying)
        dying.send(frames.Pull(limit_tokens=100, models=[model.id]))
        job_id = await _publish(subject, model, 10)
        await _receive(dying, 1)
    async with worker_of(subject) as player:
        player.send(frames.Pull(limit_tokens=100, models=[model.id]))
        jobs = await _receive(player, 1)
        require(jobs[0].id == job_id, "another job came")
        _answer(player, jobs)


async def parts_are_passed_on_in_order(subject: SidecarSubject) -> None:
    job_id = ""
    numbers: list[int] = []
    complete = asyncio.Event()

    async def take(msg: Msg) -> None:
        part = codec.decode(msg.data, Result)
        if part.job != job_id:
            return
        numbers.append(part.number)
        if part.final:
            complete.set()

    subscription = await subject.connection.subscribe(subjects.reply_filter(WORKER), cb=take)
    try:
        async with worker_of(subject) as player:
            model = await _model(player)
            player.send(frames.Pull(limit_tokens=100, models=[model.id]))
            job_id = await _publish(subject, model, 10)
            await _receive(player, 1)
            for number in range(PARTS):
                outputs = GenerateOutputs(text=f"{number} ")
                part = Result(job=job_id, outputs=outputs, number=number, final=number == PARTS - 1)
                player.send(frames.Results(results=[part]))
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await complete.wait()
        require(numbers == list(range(PARTS)), f"the parts 0 to {PARTS - 1} came as {numbers}")
    finally:
        await subscription.unsubscribe()


async def a_cancelled_job_is_announced(subject: SidecarSubject) -> None:
    async with worker_of(subject) as player:
        model = await _model(player)
        player.send(frames.Pull(limit_tokens=100, models=[model.id]))
        job_id = await _publish(subject, model, 10)
        await _receive(player, 1)
        await subject.connection.publish(subjects.cancel(job_id), b"")
        require((await expect(player, frames.Cancel)).jobs == [job_id], "another job was cancelled")


SIDECAR_CHECKS = [
    Check("hello is answered with the pool's models", hello_is_answered_with_models),
    Check("a frame may arrive in any number of pieces", frames_may_come_in_pieces),
    Check("another protocol number is refused with a reason", another_protocol_is_refused),
    Check("malformed, empty and oversized frames are refused with a reason", malformed_frames_are_refused),
    Check("a second hello on one connection is refused", a_second_hello_is_refused),
    Check("a worker that connects again replaces its older connection", the_same_worker_again_replaces_the_older),
    Check("jobs are sent only while less than the limit was sent", jobs_stay_within_the_credit),
    Check("unstarted jobs named by goodbye run elsewhere", unstarted_jobs_of_a_goodbye_run_elsewhere),
    Check("the jobs of a lost worker are sent again", a_lost_worker_returns_its_jobs),
    Check("parts of a streamed answer are passed on, each once and in order", parts_are_passed_on_in_order),
    Check("a cancelled job is announced to the worker that has it", a_cancelled_job_is_announced),
]
