"""What the queue delivers becomes a held job: read, told from duplicates, checked against time and cancellation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec
import nats.errors
import structlog
from nats.aio.msg import Msg
from nats.js.errors import APIError

from fabric.payloads import PayloadMissing, get_payload
from sidecar import metrics
from sidecar.broker.dead import keep_dead, unreadable
from sidecar.broker.link import Link
from sidecar.broker.removed import RemovedModels
from sidecar.dispatch.desk import MAX_KILLS, Desk, Spawn
from sidecar.jobs import Delivery, HeldJob, Verb
from sidecar.models import PoolModels
from wire import codec
from wire.errors import Code, ErrorInfo
from wire.jobs import InputsReference, Job, Result, TaskInputs

log = structlog.get_logger(__name__)


class _Envelope(msgspec.Struct, frozen=True):
    """What even a job of another release has: who it is and who waits."""

    id: str
    reply: str


class Intake:
    """Callbacks of the pull inboxes and of the cancel subject."""

    def __init__(
        self,
        link: Link,
        desk: Desk,
        models: PoolModels,
        removed: RemovedModels,
        machine: str,
        spawn: Spawn,
        count_tokens: Callable[[int], None],
        refusal: Callable[[str], ErrorInfo | None],
    ) -> None:
        self.stopping = False
        self._models = models
        self._removed = removed
        self._refusal = refusal
        self._link = link
        self._desk = desk
        self._machine = machine
        self._spawn = spawn
        self._count_tokens = count_tokens

    def deliver(self, msg: Msg, stream: str) -> None:
        """Take one message of the WORK stream whose incarnation is ``stream``."""
        metadata = msg.metadata
        deliveries = metadata.num_delivered or 1
        delivery = Delivery(
            ack=msg.reply,
            stream=stream,
            sequence=metadata.sequence.stream,
            deliveries=deliveries,
            last=deliveries >= self._link.queue.max_deliver,
        )
        try:
            job = self._link.clock.localized(codec.decode(msg.data, Job))
        except codec.WireDecodeError as error:
            self._spawn(self._bury_unreadable(msg, delivery, str(error)))
            return
        metrics.JOBS_RECEIVED.labels(model=job.model).inc()
        self._count_tokens(job.token_estimate)
        if not self._is_duplicate(job, delivery):
            self._admit(job, delivery, len(msg.data))

    def cancel(self, job_id: str) -> HeldJob | None:
        """Nobody waits for ``job_id`` any more; the job if it was held, settled already."""
        self._desk.cancelled.put(job_id, True, time.time())
        held = self._desk.held.get(job_id)
        if held is not None:
            metrics.JOBS_ANSWERED.labels(code=str(Code.CANCELLED)).inc()
            self._desk.settle(held, Verb.ACK)
        return held

    def _is_duplicate(self, job: Job, delivery: Delivery) -> bool:
        held = self._desk.held.get(job.id)
        if held is not None:
            metrics.DUPLICATES.inc()
            same_stream = held.delivery.stream == delivery.stream
            if same_stream and held.delivery.sequence != delivery.sequence:
                # Published twice: one of the two messages is enough.
                self._desk.outbox.settle(delivery, Verb.ACK)
            else:
                held.delivery = delivery
            self._desk.say_again(held)
            return True
        if self._desk.outbox.answered(job.id):
            metrics.DUPLICATES.inc()
            self._desk.outbox.answer_again(job.id)
            self._desk.outbox.settle(delivery, Verb.ACK)
            return True
        return False

    def _admit(self, job: Job, delivery: Delivery, size_bytes: int) -> None:
        now = time.time()
        if self._desk.cancelled.get(job.id, now):
            self._desk.outbox.settle(delivery, Verb.ACK)
            return
        if self.stopping and not delivery.last:
            metrics.JOBS_RETURNED.labels(reason="stopping").inc()
            self._desk.outbox.settle(delivery, Verb.NAK)
            return
        held = HeldJob(
            job=job,
            delivery=delivery,
            arrived=now,
            digest=self._models.artifact_of(job),
            kills=self._desk.kills.get(job.id, now) or 0,
            size_bytes=size_bytes,
        )
        self._desk.hold(held)
        refusal = self._desk.breaker.refusal(held.digest, now) or self._refusal(job.model)
        if job.deadline <= now:
            self._desk.expire(held)
        elif self._removed.gone(job.model, asyncio.get_running_loop().time()):
            self._desk.fail(held, _model_removed(job.model))
        elif refusal is not None:
            self._desk.fail(held, refusal)
        elif held.kills >= MAX_KILLS:
            self._desk.bury(held, f"{held.kills} workers died while they had the job")
        elif isinstance(job.inputs, InputsReference):
            self._desk.queue.park(self._desk.entry(held), _payload_key(job.id))
            self._spawn(self._resolve(held, job.inputs))
        else:
            self._desk.wait_for_artifact(held)

    async def _resolve(self, held: HeldJob, reference: InputsReference) -> None:
        info: ErrorInfo | None = None
        inputs: TaskInputs | None = None
        try:
            data = await get_payload(self._link.js, reference.name)
            # MyPy knows no type of types for a union; the codec takes any.
            inputs = codec.decode(data, TaskInputs)  # type: ignore[arg-type]
        except (PayloadMissing, codec.WireDecodeError) as error:
            info = ErrorInfo(
                Code.QUEUE_UNAVAILABLE, f"The inputs of the job are not in the payload store: {error}.",
                hint="Send the request again; inputs above 512 KiB are kept for 10 minutes.",
            )  # fmt: skip
        except (nats.errors.Error, APIError, TimeoutError, OSError) as error:
            info = ErrorInfo(Code.QUEUE_UNAVAILABLE, f"The payload store did not answer: {error!r}.")
        if not self._desk.owns(held):
            return
        self._desk.queue.remove(held.job.id)
        if inputs is None:
            self._desk.fail(held, info or ErrorInfo(Code.INTERNAL, "The inputs of the job could not be read."))
            return
        held.job = msgspec.structs.replace(held.job, inputs=inputs)
        held.size_bytes = reference.size_bytes
        self._desk.wait_for_artifact(held)

    async def _bury_unreadable(self, msg: Msg, delivery: Delivery, reason: str) -> None:
        dead = unreadable(msg.subject, delivery.sequence, delivery.deliveries, msg.data, reason, self._machine)
        if not await keep_dead(self._link, dead):
            return
        try:
            envelope = codec.decode(msg.data, _Envelope)
        except codec.WireDecodeError:
            pass
        else:
            self._desk.outbox.say(envelope.reply, codec.encode(Result(job=envelope.id, error=dead.error)))
        self._desk.outbox.settle(delivery, Verb.TERM)


def _model_removed(model: str) -> ErrorInfo:
    return ErrorInfo(
        Code.MODEL_NOT_FOUND, f"{model} was removed while the job waited.", param="model",
        hint="GET /v1/models lists what is there.",
    )  # fmt: skip


def _payload_key(job_id: str) -> str:
    return f"payload:{job_id}"
