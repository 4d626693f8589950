"""Jobs that leave the queue without an answer are kept with payload and reason in the stream DEAD."""

from __future__ import annotations

import asyncio
import base64
import time
from typing import Any

import msgspec
import nats.errors
import structlog
from nats.aio.msg import Msg
from nats.js.errors import APIError, NotFoundError

from sidecar import metrics
from sidecar.broker.link import Link
from wire import codec, subjects
from wire.errors import Code, ErrorInfo
from wire.jobs import DeadJob, EmbeddingInputs, Job, Result, Task

log = structlog.get_logger(__name__)

ATTEMPTS = 5
# Message id and what the server adds.
HEADER_BYTES = 4096
ADVISORY = f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{subjects.WORK_STREAM}.*"
GROUP = "sidecars"
LOOK_S = 30.0
RETRY_S = 1.0


async def keep_dead(link: Link, dead: DeadJob) -> bool:
    """Store ``dead``; ``False`` when the stream cannot be reached (the job then stays on the queue)."""
    subject = subjects.dead(dead.job.pool, dead.job.model)
    data = _fitting(dead, link.connection.max_payload - HEADER_BYTES)
    for attempt in range(ATTEMPTS):
        try:
            await link.js.publish(subject, data, timeout=2, headers={"Nats-Msg-Id": f"dead-{dead.job.id}"})
        except (nats.errors.Error, APIError, TimeoutError, OSError) as error:
            log.warning("cannot keep a dead job, trying again", job=dead.job.id, error=repr(error))
            await asyncio.sleep(0.2 * 2**attempt)
            continue
        metrics.JOBS_DEAD.labels(reason=str(dead.error.code)).inc()
        log.error("job is dead, kept in stream DEAD", job=dead.job.id, model=dead.job.model,
                  reason=dead.error.message, deliveries=dead.deliveries)  # fmt: skip
        return True
    return False


def _fitting(dead: DeadJob, limit_bytes: int) -> bytes:
    """The dead job as one message: with its reason it may be larger than the message that it came in."""
    data = codec.encode(dead)
    if len(data) <= limit_bytes:
        return data
    note = f"{dead.error.message} Its {len(data)} bytes are more than the server carries ({limit_bytes})"
    if dead.raw is None:
        error = msgspec.structs.replace(dead.error, message=f"{note}, so the inputs were left out.")
        job = msgspec.structs.replace(dead.job, inputs=EmbeddingInputs(texts=[]))
        return codec.encode(msgspec.structs.replace(dead, job=job, error=error))
    kept = dead.raw[: limit_bytes // 2]
    error = msgspec.structs.replace(dead.error, message=f"{note}, so only the first {len(kept)} were kept.")
    return codec.encode(msgspec.structs.replace(dead, raw=kept, error=error))


def unreadable(msg_subject: str, sequence: int, deliveries: int, data: bytes, reason: str, machine: str) -> DeadJob:
    """A dead job for bytes that are no job: pool and model from the subject, the bytes in ``raw``."""
    tokens = msg_subject.split(".")
    now = time.time()
    job = Job(
        id=f"unreadable-{sequence}",
        task=Task.EMBEDDINGS,
        pool=subjects.decode_token(tokens[1]) if len(tokens) > 2 else "",
        model=subjects.decode_token(tokens[2]) if len(tokens) > 2 else "",
        model_digest="",
        inputs=EmbeddingInputs(texts=[]),
        tenant="",
        token_estimate=0,
        deadline=now,
        published=now,
        reply="",
    )
    error = ErrorInfo(Code.POISON_JOB, f"The queue message is not a job this release can read: {reason}")
    return DeadJob(job=job, error=error, deliveries=deliveries, machine=machine, died=now, raw=data)


class Undertaker:
    """Takes messages out of WORK whose last delivery ended with no word (a machine was lost while it had them)."""

    def __init__(self, link: Link, machine: str) -> None:
        self._link = link
        self._machine = machine
        self._work: asyncio.Queue[int] = asyncio.Queue(maxsize=10_000)

    async def start(self) -> None:
        """Listen for the server's advisories; one sidecar of all gets each."""
        await self._link.connection.subscribe(ADVISORY, queue=GROUP, cb=self._take)

    async def run(self) -> None:
        """Stage: one message after the other, and now and then a look for those whose advisory nobody heard."""
        looked = -LOOK_S
        loop = asyncio.get_running_loop()
        while True:
            try:
                if loop.time() - looked >= LOOK_S:
                    looked = loop.time()
                    await self._look()
                sequence = await self._next(LOOK_S)
                if sequence is not None:
                    await self._bury(sequence)
            except (nats.errors.Error, APIError, TimeoutError, OSError, ValueError) as error:
                log.warning("cannot take given-up messages out of the queue", error=repr(error))
                await asyncio.sleep(RETRY_S)

    async def _next(self, timeout_s: float) -> int | None:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._work.get()
        except TimeoutError:
            return None

    async def _look(self) -> None:
        """Find messages that were delivered for the last time and are with nobody: advisories are not kept.

        What a consumer has passed (``delivered``) and neither waits for an acknowledgement nor left the stream was
        given up by the server. While some deliveries are still out this cannot be told apart, so a later look does it.
        """
        for source in await self._link.waiting():
            subject = subjects.work(source.pool, source.model, source.lane)
            try:
                consumer = await self._link.js.consumer_info(
                    subjects.WORK_STREAM, subjects.work_consumer(source.pool, source.model, source.lane)
                )
            except NotFoundError:
                continue  # Nobody asked for it yet, so nothing was given up.
            if consumer.num_ack_pending or consumer.delivered is None:
                continue
            sequence = 0
            while found := await self._get({"seq": sequence + 1, "next_by_subj": subject}):
                sequence = int(found["seq"])
                if sequence > consumer.delivered.stream_seq:
                    break
                if not self._work.full():
                    self._work.put_nowait(sequence)

    async def _take(self, msg: Msg) -> None:
        try:
            sequence = codec.decode_json(msg.data, dict).get("stream_seq")
        except codec.WireDecodeError:
            return
        if isinstance(sequence, int) and not self._work.full():
            self._work.put_nowait(sequence)

    async def _bury(self, sequence: int) -> None:
        message = await self._get({"seq": sequence})
        if message is None:
            return  # Settled meanwhile.
        data = base64.b64decode(message.get("data") or "")
        deliveries = self._link.queue.max_deliver
        try:
            job = codec.decode(data, Job)
        except codec.WireDecodeError as error:
            dead = unreadable(message["subject"], sequence, deliveries, data, str(error), self._machine)
        else:
            error_info = ErrorInfo(
                Code.POISON_JOB,
                f"The job was delivered {deliveries} times and no machine finished it.",
                hint=f"It is kept in the stream DEAD under job id {job.id}.",
            )
            dead = DeadJob(job=job, error=error_info, deliveries=deliveries, machine=self._machine, died=time.time())
        if await keep_dead(self._link, dead):
            await self._link.js.delete_msg(subjects.WORK_STREAM, sequence)
            if dead.job.reply:
                await self._link.connection.publish(
                    dead.job.reply, codec.encode(Result(job=dead.job.id, error=dead.error))
                )

    async def _get(self, which: dict[str, int | str]) -> dict[str, Any] | None:
        response = await self._link.connection.request(
            f"$JS.API.STREAM.MSG.GET.{subjects.WORK_STREAM}", codec.encode_json(which), timeout=5
        )
        message = codec.decode_json(response.data, dict[str, Any]).get("message")
        return message if isinstance(message, dict) else None
