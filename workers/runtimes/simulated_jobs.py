"""The jobs that a simulated worker has, and the room that it offers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from wire.frames import Pull
from wire.jobs import Job
from wire.registry import ModelRecord


@dataclass(slots=True, eq=False)
class Work:
    """One job: its rows, and how many of them ran. ``started`` is seconds since the epoch."""

    job: Job
    record: ModelRecord
    artifact: str | None
    texts: list[str]
    lengths: list[int]
    rows_done: int = 0
    batch_rows: int = 0
    compute_s: float = 0.0
    started: float | None = None


@dataclass(slots=True)
class Jobs:
    """Jobs in order of arrival. The credit covers the running batch and one more."""

    room_tokens: int
    draining: bool = False
    works: dict[str, Work] = field(default_factory=dict)
    _received_tokens: int = 0
    _limit_tokens: int = 0

    def reset(self) -> None:
        """A new connection: the old one's jobs went back to the sidecar's queue."""
        self.works.clear()
        self._received_tokens = self._limit_tokens = 0

    def receive(self, job: Job) -> None:
        """Count a job that came, whatever becomes of it."""
        self._received_tokens += max(1, job.token_estimate)

    def cancel(self, jobs: Iterable[str]) -> None:
        """Forget jobs that nobody waits for."""
        for job in jobs:
            self.works.pop(job, None)

    def pull(self, models: list[str], adapters: list[str]) -> Pull | None:
        """The frame that raises the sidecar's limit, or ``None`` when there is nothing to raise."""
        if self.draining:
            return None
        taken = sum(max(1, work.job.token_estimate) for work in self.works.values())
        limit = self._received_tokens + self.room_tokens - taken
        if limit <= self._limit_tokens:
            return None
        self._limit_tokens = limit
        return Pull(limit_tokens=limit, models=models, adapters=adapters)
