"""The one owner of every job this machine holds: from delivery to answer and acknowledgement, each exactly once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import structlog

from sidecar import metrics
from sidecar.artifacts.cache import ArtifactCache
from sidecar.broker.dead import keep_dead
from sidecar.broker.link import Link
from sidecar.broker.outbox import Outbox
from sidecar.jobs import HeldJob, Stage, Verb
from sidecar.queueing.breaker import Breaker
from sidecar.queueing.line import Entry
from sidecar.queueing.local import LocalQueue
from sidecar.queueing.memory import TimedMemory
from wire import codec
from wire.errors import Code, ErrorInfo, ShoalError
from wire.jobs import DeadJob, Result

log = structlog.get_logger(__name__)

REMEMBER_S = 300.0
REMEMBER_JOBS = 16_384
MAX_KILLS = 2
# Workers name what they run, but a death can come before the word: so often the benefit of the doubt is given.
MAX_LOSSES = 3
MAX_PARKED_JOBS = 512
MAX_PARKED_PER_ARTIFACT = 64

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Desk:
    """Held jobs and their queue. ``changed`` is set whenever a worker may be given something."""

    def __init__(self, link: Link, outbox: Outbox, cache: ArtifactCache, machine: str, spawn: Spawn) -> None:
        self.held: dict[str, HeldJob] = {}
        self.queue = LocalQueue()
        self.changed = asyncio.Event()
        self.cancelled: TimedMemory[bool] = TimedMemory(REMEMBER_S, REMEMBER_JOBS)
        self.kills: TimedMemory[int] = TimedMemory(REMEMBER_S, REMEMBER_JOBS)
        self.breaker = Breaker()
        self.outbox = outbox
        self._link = link
        self._cache = cache
        self._machine = machine
        self._spawn = spawn

    def entry(self, held: HeldJob) -> Entry:
        """The job as the local queue sees it."""
        job = held.job
        return Entry(
            id=job.id,
            model=job.model,
            adapter=job.adapter_digest,
            tokens=held.tokens,
            arrived=held.arrived,
            deadline=job.deadline,
            suspect=held.kills > 0,
            tenant=job.tenant,
        )

    def hold(self, held: HeldJob) -> None:
        """Take responsibility for a job; its artifact stays on disk until the job is settled."""
        self.held[held.job.id] = held
        if held.digest is not None:
            self._cache.hold(held.digest)
        metrics.HELD_JOBS.set(len(self.held))

    def owns(self, held: HeldJob) -> bool:
        """Whether this very job is still to be answered."""
        return self.held.get(held.job.id) is held

    def jobs_of(self, model: str) -> int:
        """How many jobs of ``model`` are held."""
        return sum(held.job.model == model for held in self.held.values())

    def wait(self, held: HeldJob) -> None:
        """Put a job that can run into the local queue, at its place by arrival."""
        held.stage = Stage.WAITING
        self.queue.put(self.entry(held))
        self.changed.set()

    def wait_for_artifact(self, held: HeldJob) -> None:
        """Queue the job if its file is on disk, else park it until the download ended. One task per digest."""
        digest = held.digest
        path = None if digest is None else self._cache.find(digest)
        if digest is None or path is not None:
            held.artifact = path
            self.wait(held)
            return
        held.stage = Stage.WAITING
        waiting = len(self.queue.parked_under(digest))
        if waiting >= MAX_PARKED_PER_ARTIFACT or self.queue.parked >= MAX_PARKED_JOBS:
            self._refuse_parking(held, digest, waiting)
            return
        self.queue.park(self.entry(held), digest)
        if not waiting:
            self._spawn(self._fetch(digest))

    def _refuse_parking(self, held: HeldJob, digest: str, waiting: int) -> None:
        """A slow download must not gather jobs here without bound: they wait on the queue, and not for ever."""
        if not held.delivery.last:
            self.hand_back(held, "artifact slow")
            return
        self.fail(
            held,
            ErrorInfo(
                Code.ARTIFACT_UNAVAILABLE,
                f"Artifact {digest} is still being fetched; {waiting} jobs wait for it on {self._machine}, "
                f"{self.queue.parked} for all artifacts (bounds {MAX_PARKED_PER_ARTIFACT} and {MAX_PARKED_JOBS}).",
                hint="Try again shortly.",
            ),
        )

    def answer(self, held: HeldJob, result: Result) -> None:
        """Send the final answer, then acknowledge."""
        data = codec.encode(result)
        limit_bytes = self._link.connection.max_payload
        if len(data) > limit_bytes:
            result = _too_large(result, len(data), limit_bytes)
            data = codec.encode(result)
        code = "ok" if result.error is None else str(result.error.code)
        metrics.JOBS_ANSWERED.labels(code=code).inc()
        self.outbox.answer(held.job.id, held.job.reply, held.job.deadline, data)
        self.settle(held, Verb.ACK)

    def fail(self, held: HeldJob, error: ErrorInfo) -> None:
        """Answer with an error, then acknowledge."""
        job = held.job
        self.answer(
            held,
            Result(job=job.id, model_digest=job.model_digest, adapter_digest=job.adapter_digest, error=error),
        )

    def say_part(self, held: HeldJob, data: bytes) -> None:
        """Send one part of a text."""
        held.said.append(data)
        self.outbox.say(held.job.reply, data)

    def say_again(self, held: HeldJob) -> None:
        """Send the parts of a text once more, since some may be lost: the gateway passes on what it has not had."""
        for data in held.said:
            self.outbox.say(held.job.reply, data)

    def expire(self, held: HeldJob) -> None:
        """The deadline passed before an answer. The gateway has told its client; this says it once more."""
        waited_ms = (time.time() - held.job.published) * 1000
        # An answer is sent while the deadline lasts; for this one the deadline is its reason, so it goes at once.
        info = ErrorInfo(
            Code.DEADLINE_EXCEEDED,
            f"The deadline passed after {waited_ms:.0f} ms, before the job was done ({held.stage}).",
        )
        metrics.JOBS_ANSWERED.labels(code=str(info.code)).inc()
        self.outbox.say(held.job.reply, codec.encode(Result(job=held.job.id, error=info)))
        self.settle(held, Verb.ACK)

    def settle(self, held: HeldJob, verb: Verb) -> None:
        """Give up a job without an answer of its own: acknowledge, hand back or terminate."""
        self.queue.remove(held.job.id)
        self.outbox.settle(held.delivery, verb)
        del self.held[held.job.id]
        if held.digest is not None:
            self._cache.release(held.digest)
        metrics.HELD_JOBS.set(len(self.held))

    def hand_back(self, held: HeldJob, reason: str, verb: Verb = Verb.LATER) -> None:
        """Let another machine run the job, after a moment in which this one stops asking for its like; a last
        delivery is kept, since it would never come again."""
        if held.delivery.last:
            return
        metrics.JOBS_RETURNED.labels(reason=reason).inc()
        self.settle(held, verb)

    def bury(self, held: HeldJob, reason: str) -> None:
        """Keep the job in DEAD with ``reason``, answer POISON_JOB, terminate. In the background, retried."""
        held.stage = Stage.DYING
        self.queue.remove(held.job.id)
        self._spawn(self._bury(held, reason))

    def suspect(self, held: HeldJob, *, worker: str, worked_at: bool) -> None:
        """A worker died while it had this job: if it worked at it, try it once more, alone, then bury it."""
        held.losses += not worked_at
        if not worked_at and held.losses < MAX_LOSSES:
            self.requeue(held, "worker lost")
            return
        held.kills += 1
        self.kills.put(held.job.id, held.kills, time.time())
        if held.kills >= MAX_KILLS:
            reason = f"{held.kills} workers died while they had the job, the last was {worker}"
            self._flag(held, reason)
            self.bury(held, reason)
        elif held.delivery.last:
            self.bury(held, f"the job was delivered {held.delivery.deliveries} times and worker {worker} died with it")
        else:
            self.requeue(held, "worker lost")

    def _flag(self, held: HeldJob, reason: str) -> None:
        """Count a death against the version the job ran on; refuse what waits for it if that was one too many."""
        until = self.breaker.died(held.digest, reason, time.time())
        if until is None:
            return
        metrics.DIGESTS_REFUSED.inc()
        log.error("version refused, its jobs kill workers", digest=held.digest, version=held.job.version,
                  seconds=round(until - time.time()), reason=reason)  # fmt: skip
        for other in [one for one in self.held.values() if one.digest == held.digest and one is not held]:
            refusal = self.breaker.refusal(held.digest, time.time())
            if other.stage is Stage.WAITING and refusal is not None:
                self.fail(other, refusal)

    def requeue(self, held: HeldJob, reason: str) -> None:
        """Back into the local queue at once, at its old place."""
        metrics.JOBS_REQUEUED.labels(reason=reason).inc()
        held.said.clear()
        refusal = self.breaker.refusal(held.digest, time.time())
        if refusal is None:
            self.wait_for_artifact(held)
        else:
            self.fail(held, refusal)

    async def _bury(self, held: HeldJob, reason: str) -> None:
        error = ErrorInfo(
            Code.POISON_JOB,
            f"The job was taken out of the queue: {reason}.",
            hint=f"It is kept in the stream DEAD under job id {held.job.id}.",
        )
        now = time.time()
        dead = DeadJob(
            job=held.job,
            error=error,
            deliveries=held.delivery.deliveries,
            machine=self._machine,
            died=now,
            refused_until=self.breaker.refused(now).get(held.digest or ""),
        )
        kept = await keep_dead(self._link, dead)
        if not self.owns(held):
            return
        data = codec.encode(Result(job=held.job.id, error=error))
        if kept:
            self.outbox.answer(held.job.id, held.job.reply, held.job.deadline, data)
            self.settle(held, Verb.TERM)
        else:
            # The queue has the only copy, so it stays there: no settlement and no memory of an answer, or its next
            # delivery would be taken for done and thrown away.
            self.outbox.say(held.job.reply, data)
            self.forget(held)

    def forget(self, held: HeldJob) -> None:
        """Stop caring for a job without settling it; its delivery runs out by itself."""
        self.queue.remove(held.job.id)
        del self.held[held.job.id]
        if held.digest is not None:
            self._cache.release(held.digest)

    async def _fetch(self, digest: str) -> None:
        try:
            path: Path = await self._cache.ensure(digest)
        except ShoalError as error:
            for entry in self.queue.remove_parked(digest):
                self.fail(self.held[entry.id], error.info)
            return
        for job_id in self.queue.parked_under(digest):
            self.held[job_id].artifact = path
        self.queue.unpark(digest)
        self.changed.set()


def _too_large(result: Result, size_bytes: int, limit_bytes: int) -> Result:
    error = ErrorInfo(
        Code.PAYLOAD_TOO_LARGE,
        f"The answer has {size_bytes} bytes, the queue's server carries {limit_bytes}.",
        hint="Send fewer inputs per request, or raise max_payload of the NATS server.",
    )
    return Result(job=result.job, model_digest=result.model_digest, adapter_digest=result.adapter_digest, error=error)
