"""The gateway's side of the work queue: publish with confirmation, await the reply, cancel, publish again.

One subscription takes all confirmations and one all replies, so that a request costs two dictionary look-ups and no
task. A job is published again, under a new message id but its own job id, when the stream was lost or the
connection was: its copy in memory, or its reply, may be gone. Two answers are harmless: the first wins.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from contextlib import suppress

import msgspec
import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from fabric.connection import Connection
from fabric.topology import QueueSettings
from gateway.metrics import Metrics
from gateway.waiters import Waiter, unavailable
from wire import codec, subjects
from wire.errors import Code, ShoalError
from wire.jobs import Job, Result

log = structlog.get_logger(__name__)

# A connection that flaps must not multiply the load for ever.
MAX_PUBLISHES = 4
STOP_S = 0.2
STORE_FAILED = 10077


class _AckError(msgspec.Struct, frozen=True):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Ack(msgspec.Struct, frozen=True):
    """JetStream's confirmation of a publish."""

    error: _AckError | None = None


_ack_decoder = msgspec.json.Decoder(_Ack)


class WorkQueue:
    """Publishes jobs and resolves their answers. ``stream_lost`` is set when the work stream does not exist."""

    def __init__(
        self,
        connection: Connection,
        gateway_id: str,
        *,
        settings: QueueSettings,
        publish_timeout_s: float,
        metrics: Metrics,
    ) -> None:
        self.stream_lost = asyncio.Event()
        self._connection = connection
        self._gateway_id = gateway_id
        self._settings = settings
        self._publish_timeout_s = publish_timeout_s
        self._metrics = metrics
        self._ack_prefix = f"_INBOX.{gateway_id}."
        self._waiters: dict[str, Waiter] = {}
        self._cancels: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Subscribe to confirmations and replies."""
        await self._connection.subscribe(f"{self._ack_prefix}*", cb=self._take_ack)
        await self._connection.subscribe(subjects.reply_filter(self._gateway_id), cb=self._take_reply)

    async def run_job(self, job: Job, *, timeout_ms: int, gone: asyncio.Future[None] | None = None) -> Result:
        """Publish ``job`` and return its complete result.

        ``gone`` fails when the client leaves. Raises ``ShoalError`` QUEUE_FULL, QUEUE_UNAVAILABLE,
        DEADLINE_EXCEEDED, and what ``gone`` fails with; in every case nobody works for nothing: the job is cancelled.
        """
        loop = asyncio.get_running_loop()
        waiter = Waiter(job, subjects.work(job.pool, job.model), codec.encode(job), loop.create_future())
        self._waiters[job.id] = waiter
        remaining_s = job.deadline - time.time()
        waiter.timers = [
            loop.call_later(remaining_s, waiter.expire, timeout_ms),
            loop.call_later(self._publish_timeout_s, waiter.give_up_publishing, self._publish_timeout_s),
        ]
        if gone is not None:
            gone.add_done_callback(lambda ended: _leave(waiter, ended))
        try:
            # While the connection is down nothing is sent: the reconnect publishes what waits.
            if self._connection.is_connected:
                await self._publish(waiter)
            result = await waiter.answer
        except BaseException:
            if waiter.publishes and not waiter.refused:
                self._cancel(job.id)
            raise
        else:
            if waiter.publishes > 1:
                self._cancel(job.id)
            return result
        finally:
            waiter.release()
            del self._waiters[job.id]

    async def publish_again(self, *, accepted_too: bool) -> int:
        """Publish the jobs that still wait, at most three times each; how many.

        ``accepted_too``: also those that the queue had confirmed, for when it or a reply may have been lost since.
        """
        again = [
            waiter
            for waiter in self._waiters.values()
            if waiter.publishes < MAX_PUBLISHES and not waiter.answer.done() and (accepted_too or not waiter.accepted)
        ]
        for waiter in again:
            if waiter.publishes:
                self._metrics.republished.inc()
            await self._publish(waiter)
        return len(again)

    async def stop(self) -> None:
        """Send the cancellations that are still on their way."""
        if self._cancels:
            await asyncio.wait(self._cancels, timeout=STOP_S)

    async def _publish(self, waiter: Waiter) -> None:
        waiter.publishes += 1
        job_id = waiter.job.id
        message_id = job_id if waiter.publishes == 1 else f"{job_id}.{waiter.publishes}"
        try:
            await self._connection.publish(
                waiter.subject,
                waiter.payload,
                reply=self._ack_prefix + job_id,
                headers={"Nats-Msg-Id": message_id},
            )
        except NatsError as error:
            if not self._connection.is_connected:
                return
            waiter.fail(unavailable(f"The job cannot be published: {error}."))

    async def _take_ack(self, msg: Msg) -> None:
        waiter = self._waiters.get(msg.subject[len(self._ack_prefix) :])
        if waiter is None:
            return
        if not msg.data:
            # Status 503 without a body: no stream listens on the subject.
            self.stream_lost.set()
            return
        ack = _ack_decoder.decode(msg.data)
        if ack.error is None:
            if not waiter.accepted:
                waiter.accepted = True
                self._metrics.published.inc()
            return
        # A job that was taken before may still be answered; a later copy's refusal decides nothing.
        if not waiter.accepted:
            waiter.refused = True
            waiter.fail(self._refusal(ack.error, waiter.job.model))

    def _refusal(self, error: _AckError, model: str) -> ShoalError:
        if error.err_code == STORE_FAILED and error.description.startswith("maximum"):
            if "per subject" in error.description:
                bound = f"{self._settings.max_model_messages} jobs of {model}"
            elif "bytes" in error.description:
                bound = f"{self._settings.max_bytes} bytes"
            else:
                bound = f"{self._settings.max_messages} jobs"
            return ShoalError(
                Code.QUEUE_FULL,
                f"The queue is full: {bound} wait, its bound.",
                hint="Try again after the time in Retry-After.",
                detail={"retry_after_s": 1},
            )
        return unavailable(f"The queue refuses the job: {error.description or error.code}.")

    async def _take_reply(self, msg: Msg) -> None:
        waiter = self._waiters.get(msg.subject.rpartition(".")[2])
        if waiter is None:
            self._metrics.late_replies.inc()
            return
        try:
            result = codec.decode(msg.data, Result)
        except codec.WireDecodeError as error:
            log.warning("reply cannot be read", job=waiter.job.id, error=str(error))
            waiter.fail(ShoalError(Code.INTERNAL, "The worker's answer cannot be read."))
            return
        if result.final and not waiter.finish(result):
            self._metrics.late_replies.inc()

    def _cancel(self, job_id: str) -> None:
        self._metrics.cancelled.inc()
        task = asyncio.create_task(_quietly(self._connection.publish(subjects.cancel(job_id))))
        self._cancels.add(task)
        task.add_done_callback(self._cancels.discard)


async def _quietly(publish: Awaitable[None]) -> None:
    # A lost cancellation costs one job's work; the job's deadline ends it.
    with suppress(NatsError):
        await publish


def _leave(waiter: Waiter, ended: asyncio.Future[None]) -> None:
    if not ended.cancelled():
        error = ended.exception()
        if error is not None:
            waiter.fail(error)
