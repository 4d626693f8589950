"""What time brings: deadlines, progress acknowledgements, silent workers, jobs that nobody here can run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sidecar import metrics
from sidecar.dispatch.crew import Crew
from sidecar.dispatch.desk import Desk
from sidecar.jobs import HeldJob, Stage, Verb

TICK_S = 0.1
WATCH_S = 0.5
PROGRESS_S = 5.0
LATE_S = 2.0


class Upkeep:
    """Stage that looks at all held jobs ten times a second."""

    def __init__(
        self, desk: Desk, crew: Crew, elsewhere: Callable[[str], bool], *, watchdog_s: float, orphan_s: float
    ) -> None:
        self._desk = desk
        self._crew = crew
        self._elsewhere = elsewhere
        self._watchdog_s = watchdog_s
        self._orphan_s = orphan_s
        self._unserved_since: dict[str, float] = {}

    async def run(self) -> None:
        """Stage."""
        now = progressed = watched = time.monotonic()
        while True:
            before = now
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            if now - before > LATE_S:
                # This process stood still, so what workers said meanwhile is unread: their silence was ours.
                self._crew.excuse_silence(now - before)
            self._expire()
            self._hand_back_orphans(now)
            self._crew.steal()
            if len(self._desk.queue):
                # A job passed over for affinity becomes due by time alone.
                self._desk.changed.set()
            if now - watched >= WATCH_S:
                watched = now
                self._crew.kill_silent(self._watchdog_s)
                metrics.QUEUED_JOBS.set(len(self._desk.queue))
            if now - progressed >= PROGRESS_S:
                progressed = now
                for held in self._desk.held.values():
                    self._desk.outbox.settle(held.delivery, Verb.PROGRESS)

    def hand_back_waiting(self, reason: str) -> None:
        """Let others run what has not started here."""
        for held in self._of_stage(Stage.WAITING):
            self._desk.hand_back(held, reason, Verb.NAK)

    def hand_back_all(self) -> None:
        """Let others run everything still held; what was delivered for the last time becomes a dead job later, by
        the server's advisory, since a refusal now would leave it stuck."""
        for held in list(self._desk.held.values()):
            self._desk.hand_back(held, "stopping", Verb.NAK)

    def _expire(self) -> None:
        now = time.time()
        for entry in self._desk.queue.expire(now):
            self._desk.expire(self._desk.held[entry.id])
        for held in self._of_stage(Stage.SENT):
            if held.job.deadline <= now:
                self._desk.expire(held)

    def _hand_back_orphans(self, now: float) -> None:
        waiting = self._of_stage(Stage.WAITING)
        servable = self._crew.roster.servable() if waiting else frozenset()
        answering = self._crew.roster.answering() if waiting else frozenset()
        # A worker that is late with a sign of life is waited for, unless another machine could do the work.
        unserved = {
            model
            for model in {held.job.model for held in waiting}
            if model not in servable or (model not in answering and self._elsewhere(model))
        }
        for model in set(self._unserved_since) - unserved:
            del self._unserved_since[model]
        for model in unserved:
            self._unserved_since.setdefault(model, now)
        # A job that comes back to the same lonely machine waits again, or its deliveries would be used up at once.
        arrived_before = time.time() - self._orphan_s
        for held in waiting:
            since = self._unserved_since.get(held.job.model)
            if since is not None and now - since >= self._orphan_s and held.arrived <= arrived_before:
                self._desk.hand_back(held, "no worker")

    def _of_stage(self, stage: Stage) -> list[HeldJob]:
        return [held for held in self._desk.held.values() if held.stage is stage]
