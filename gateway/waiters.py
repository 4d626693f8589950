"""Requests that wait for the answer to their job: what each needs to be published again, and how it ends."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from gateway.parts import Parts
from wire.errors import Code, ShoalError
from wire.jobs import Job, Result


@dataclass(slots=True, eq=False)
class Waiter:
    """One job on its way. ``accepted`` or ``refused`` by the queue, sent ``publishes`` times.

    With ``parts`` the answer is a stream: ``news`` is set when there is one to pass on, or when the request ended.
    """

    job: Job
    subject: str
    payload: bytes
    answer: asyncio.Future[Result]
    accepted: bool = False
    refused: bool = False
    publishes: int = 0
    timers: list[asyncio.TimerHandle] = field(default_factory=list)
    parts: Parts | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def stream(self) -> Parts:
        """Take parts from now on, not a whole answer."""
        self.parts = Parts()
        self.answer.add_done_callback(lambda _: self.news.set())
        return self.parts

    def take_part(self, result: Result) -> None:
        """Take one part of a stream, or what ends it."""
        if self.parts is None or self.answer.done():
            return
        try:
            self.parts.take(result)
        except ShoalError as error:
            self.fail(error)
        else:
            self.news.set()

    def finish(self, result: Result) -> bool:
        """Hand over the answer; ``False`` when the request has ended already."""
        if self.answer.done():
            return False
        self.answer.set_result(result)
        return True

    def fail(self, error: BaseException) -> None:
        """End the request with ``error`` unless it has ended already."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def expire(self, timeout_ms: int) -> None:
        """End the request because its deadline has passed."""
        where = "a worker had not answered" if self.accepted else "the queue had not confirmed it"
        if self.parts is not None and self.parts.text:
            where = f"the text was not complete after {len(self.parts.text)} characters"
        self.fail(late(timeout_ms, where))

    def give_up_publishing(self, timeout_s: float) -> None:
        """End the request because the queue did not take its job in time."""
        if not self.accepted:
            self.fail(unavailable(f"The queue did not take the job within {timeout_s:g} s."))

    def release(self) -> None:
        """Cancel the timers."""
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()


def unavailable(message: str) -> ShoalError:
    """The queue cannot be used at present."""
    return ShoalError(Code.QUEUE_UNAVAILABLE, message, hint="Try again shortly.", detail={"retry_after_s": 2})


def late(timeout_ms: int, where: str) -> ShoalError:
    """The deadline passed; ``where`` says what had not happened by then."""
    return ShoalError(
        Code.DEADLINE_EXCEEDED,
        f"The deadline of {timeout_ms} ms passed and {where}.",
        hint="Allow more time with the header x-shoal-timeout-ms (at most 300000), or send fewer inputs.",
    )
