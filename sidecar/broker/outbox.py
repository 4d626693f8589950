"""What leaves for NATS, in order, by one task: an answer always goes before the acknowledgement of its job.

While the connection or the stream is away everything stays here; answers whose deadline passes are dropped, since
their clients were told so by the gateway. After a reconnect the answers that may not have reached the server go again:
a gateway takes the first of each job and drops the rest.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass

import nats.errors
import structlog

from sidecar.broker.link import Link
from sidecar.jobs import Delivery, Verb
from sidecar.queueing.memory import Answer, TimedMemory

log = structlog.get_logger(__name__)

KEEP_ANSWERS_S = 120.0
KEEP_ANSWERS = 8_192
KEEP_ANSWER_BYTES = 256 * 1024
KEEP_ALL_BYTES = 64 * 1024 * 1024
RECENT_S = 1.0
SAY_S = 5.0


@dataclass(frozen=True, slots=True)
class _Publish:
    subject: str
    data: bytes
    deadline: float


@dataclass(frozen=True, slots=True)
class _Settle:
    delivery: Delivery
    verb: Verb


class Outbox:
    """Ordered, loss-tolerant way out. Answers are kept a while for redeliveries of jobs that are done."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._queue: deque[_Publish | _Settle] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._answers: TimedMemory[Answer] = TimedMemory(KEEP_ANSWERS_S, KEEP_ANSWERS, KEEP_ALL_BYTES)
        self._reconnects = link.connection.stats["reconnects"]

    def __len__(self) -> int:
        return len(self._queue)

    def answer(self, job_id: str, reply: str, deadline: float, data: bytes) -> None:
        """Send ``data`` to ``reply``; ``deadline`` is seconds since the epoch."""
        # Only what can be sent again is remembered: a job whose answer was too large to keep runs again instead.
        if len(data) <= KEEP_ANSWER_BYTES:
            self._answers.put(job_id, Answer(reply, deadline, data), self._now(), len(data))
        self._put(_Publish(reply, data, deadline))

    def say(self, reply: str, data: bytes) -> None:
        """Send ``data`` to ``reply`` without keeping it: news that is worthless when it cannot be sent soon."""
        self._put(_Publish(reply, data, time.time() + SAY_S))

    def answered(self, job_id: str) -> bool:
        """Whether the job was answered here lately."""
        return self._answers.get(job_id, self._now()) is not None

    def answer_again(self, job_id: str) -> None:
        """Send the kept answer of a job that was delivered again."""
        answer = self._answers.get(job_id, self._now())
        if answer is not None:
            self._put(_Publish(answer.reply, answer.data, answer.deadline))

    def settle(self, delivery: Delivery, verb: Verb) -> None:
        """Settle a delivery after everything put before it."""
        self._put(_Settle(delivery, verb))

    async def wait_empty(self, timeout_s: float) -> bool:
        """Whether everything went out within ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Stage: sends."""
        while True:
            if not self._queue:
                self._idle.set()
                self._wake.clear()
                await self._wake.wait()
            if not self._link.ready:
                await self._link.wait_ready()
            self._send_lost_answers_again()
            while self._queue and self._link.ready:
                if await self._send(self._queue[0]):
                    self._queue.popleft()

    async def _send(self, item: _Publish | _Settle) -> bool:
        try:
            if isinstance(item, _Settle):
                if item.delivery.stream == self._link.stream:
                    await self._link.connection.publish(item.delivery.ack, item.verb.value.encode())
            elif item.deadline > time.time():
                await self._link.connection.publish(item.subject, item.data)
        except nats.errors.MaxPayloadError:
            # The desk bounds answers; a server with a smaller limit than ours must not stop all others.
            log.exception("answer larger than the NATS server allows, dropped")
        except (nats.errors.Error, OSError) as error:
            log.warning("cannot publish, trying again", error=repr(error))
            await asyncio.sleep(0.1)
            return False
        return True

    def notice_reconnect(self) -> None:
        """Let the task look whether answers were lost with the old connection."""
        self._wake.set()

    def _send_lost_answers_again(self) -> None:
        reconnects = self._link.connection.stats["reconnects"]
        if reconnects == self._reconnects:
            return
        self._reconnects = reconnects
        now = time.time()
        # what waits still goes in its own turn, after the parts before it
        waiting = {id(item.data) for item in self._queue if isinstance(item, _Publish)}
        again = [
            _Publish(one.reply, one.data, one.deadline)
            for one in self._answers.since(self._link.last_round_trip - RECENT_S)
            if one.deadline > now and id(one.data) not in waiting
        ]
        self._queue.extendleft(reversed(again))

    def _put(self, item: _Publish | _Settle) -> None:
        self._queue.append(item)
        self._idle.clear()
        self._wake.set()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
