"""The gateway's side of the work queue: publish with confirmation, await the reply, cancel, publish again.

One subscription takes all confirmations and one all replies, so that a request costs two dictionary look-ups and no
task. A job is published again, under a new message id but its own job id, when the stream was lost or the
connection was: its copy in memory, or its reply, may be gone. Two answers are harmless: the first wins.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable
from contextlib import suppress
from functools import lru_cache

import msgspec
import structlog
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


# Encoding the names costs more than the rest of publishing; a gateway sees few of them.
_subject = lru_cache(maxsize=4096)(subjects.work)
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
        await self._connection.subscribe_direct(f"{self._ack_prefix}*", self._take_ack)
        await self._connection.subscribe_direct(subjects.reply_filter(self._gateway_id), self._take_reply)

    async def run_job(
        self, job: Job, *, lane: str, timeout_ms: int, gone: asyncio.Future[None] | None = None
    ) -> Result:
        """Publish ``job`` in ``lane`` and return its complete result.

        ``gone`` fails when the client leaves. Raises ``ShoalError`` QUEUE_FULL, QUEUE_UNAVAILABLE,
        DEADLINE_EXCEEDED, and what ``gone`` fails with; in every case nobody works for nothing: the job is cancelled.
        """
        waiter = self._expect(job, lane, timeout_ms, gone)
        try:
            await self._publish_if_connected(waiter)
            result = await waiter.answer
        except BaseException:
            self._give_up(waiter)
            raise
        else:
            if waiter.publishes > 1:
                self._cancel(job.id)
            return result
        finally:
            self._forget(waiter)

    async def stream_job(
        self, job: Job, *, lane: str, timeout_ms: int, idle_s: float, gone: asyncio.Future[None] | None = None
    ) -> AsyncGenerator[Result]:
        """Publish ``job`` and yield the parts of its text in order, each character once; the last one is final.

        Raises as ``run_job`` does, and DEADLINE_EXCEEDED when no part came for ``idle_s`` after the first one. The
        caller closes the generator when it stops early, which cancels the job.
        """
        waiter = self._expect(job, lane, timeout_ms, gone)
        parts = waiter.stream()
        started = complete = False
        try:
            await self._publish_if_connected(waiter)
            while not complete:
                while parts.ready and not complete:
                    started, complete = True, parts.ready[0].final
                    yield parts.ready.popleft()
                if complete:
                    break
                if waiter.answer.done():
                    await waiter.answer
                waiter.news.clear()
                await _news(waiter, idle_s if started else None)
        except BaseException:
            if not complete:
                self._give_up(waiter)
            raise
        else:
            if waiter.publishes > 1:
                self._cancel(job.id)
        finally:
            self._forget(waiter)

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

    def _expect(self, job: Job, lane: str, timeout_ms: int, gone: asyncio.Future[None] | None) -> Waiter:
        loop = asyncio.get_running_loop()
        waiter = Waiter(job, _subject(job.pool, job.model, lane), codec.encode(job), loop.create_future())
        self._waiters[job.id] = waiter
        waiter.timers = [
            loop.call_later(job.deadline - time.time(), waiter.expire, timeout_ms),
            loop.call_later(self._publish_timeout_s, waiter.give_up_publishing, self._publish_timeout_s),
        ]
        if gone is not None:
            gone.add_done_callback(lambda ended: _leave(waiter, ended))
        return waiter

    def _forget(self, waiter: Waiter) -> None:
        waiter.release()
        del self._waiters[waiter.job.id]
        # Nobody may be left to look at how it ended.
        if not waiter.answer.done():
            waiter.answer.cancel()
        elif not waiter.answer.cancelled():
            waiter.answer.exception()

    def _give_up(self, waiter: Waiter) -> None:
        if waiter.publishes and not waiter.refused:
            self._cancel(waiter.job.id)

    async def _publish_if_connected(self, waiter: Waiter) -> None:
        # While the connection is down nothing is sent: the reconnect publishes what waits.
        if self._connection.is_connected:
            await self._publish(waiter)

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

    def _take_ack(self, subject: str, data: bytes) -> None:
        waiter = self._waiters.get(subject[len(self._ack_prefix) :])
        if waiter is None:
            return
        if not data:
            # Status 503 without a body: no stream listens on the subject.
            self.stream_lost.set()
            return
        ack = _ack_decoder.decode(data)
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

    def _take_reply(self, subject: str, data: bytes) -> None:
        waiter = self._waiters.get(subject.rpartition(".")[2])
        if waiter is None:
            self._metrics.late_replies.inc()
            return
        try:
            result = codec.decode(data, Result)
        except codec.WireDecodeError as error:
            log.warning("reply cannot be read", job=waiter.job.id, error=str(error))
            waiter.fail(ShoalError(Code.INTERNAL, "The worker's answer cannot be read."))
            return
        if waiter.parts is not None:
            waiter.take_part(result)
        elif result.final and not waiter.finish(result):
            self._metrics.late_replies.inc()

    def _cancel(self, job_id: str) -> None:
        self._metrics.cancelled.inc()
        task = asyncio.create_task(_quietly(self._connection.publish(subjects.cancel(job_id))))
        self._cancels.add(task)
        task.add_done_callback(self._cancels.discard)


async def _news(waiter: Waiter, idle_s: float | None) -> None:
    try:
        async with asyncio.timeout(idle_s):
            await waiter.news.wait()
    except TimeoutError:
        raise ShoalError(
            Code.DEADLINE_EXCEEDED,
            f"The text stopped: no part of it came for {idle_s:g} s.",
            hint="Send the request again.",
        ) from None


async def _quietly(publish: Awaitable[None]) -> None:
    # A lost cancellation costs one job's work; the job's deadline ends it.
    with suppress(NatsError):
        await publish


def _leave(waiter: Waiter, ended: asyncio.Future[None]) -> None:
    if not ended.cancelled():
        error = ended.exception()
        if error is not None:
            waiter.fail(error)
