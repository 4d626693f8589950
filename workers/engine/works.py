"""Jobs inside the worker, from their arrival to their answer, and the room that the sidecar may fill."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from wire.canonical import HeadHeader
from wire.frames import Pull
from wire.jobs import Job, Task
from wire.telemetry import WorkerState
from workers.models.loaded import LoadedModel
from workers.models.protocol import PreparedInputs, RowOutput
from workers.packing.artifact import PreparedAdapter

_WAITING_SHARES = 4
_STARTED_SHARES = 16
"""A job fills at most this part of the room, whatever its size, and less once it runs: it shares each batch with
others then. So one huge job shuts nobody out, and a flood of them still ends the credit."""
_WAITING_TEXTS = 16
_STARTED_TEXTS = 128
"""A text in the making takes this part of the room: 64 leave half of it to others. One that waits takes more, so that
a flood of them waits where another machine can take them."""


@dataclass(slots=True, eq=False)
class Work:
    """One job on its way. ``gone``: nobody waits for it (cancelled, answered, or its connection was lost).

    ``head`` is the one that the job's adapter brings, known once the job is prepared.
    """

    job: Job
    artifact_path: str | None
    arrived: int = 0
    model: LoadedModel | None = None
    prepared: PreparedInputs | None = None
    adapter: PreparedAdapter | None = None
    head: HeadHeader | None = None
    outputs: list[RowOutput | None] = field(default_factory=list)
    ready: bool = False
    gone: bool = False
    rows_done: int = 0
    batch_rows: int = 0
    compute_s: float = 0.0
    started: float | None = None

    @property
    def outstanding_tokens(self) -> int:
        """What is still to run: the gateway's guess until the real count is known."""
        if self.prepared is None:
            return max(1, self.job.token_estimate)
        return sum(map(len, self.prepared.rows[self.rows_done :]))

    def share_tokens(self, room_tokens: int) -> int:
        """What the job takes of a room of ``room_tokens``."""
        if self.job.task is Task.GENERATE:
            # whatever its length: what counts is how many texts are made at once, and that few more wait here
            return max(1, room_tokens // (_WAITING_TEXTS if self.started is None else _STARTED_TEXTS))
        shares = _WAITING_SHARES if self.started is None else _STARTED_SHARES
        return min(self.outstanding_tokens, max(1, room_tokens // shares))

    def store(self, row: int, output: RowOutput) -> None:
        """Keep one row's output."""
        if not self.outputs and self.prepared is not None:
            self.outputs = [None] * len(self.prepared.rows)
        # a copy: it is a part of what the whole pass gave, which would stay as long as the job
        self.outputs[row] = output.copy()
        self.rows_done += 1

    def start_over(self) -> None:
        """Forget all that was made for a model that is there no more."""
        self.ready, self.rows_done = False, 0
        self.model = self.prepared = self.adapter = self.head = None
        self.outputs = []


@dataclass(slots=True)
class _Credit:
    received_tokens: int = 0
    limit_tokens: int = 0


@dataclass(slots=True)
class WaitingRoom:
    """Every job the worker has, the device thread's wake-up, and the credit given to the sidecar.

    The credit covers the running batch and one more, so the device never waits and no stock is held that another
    machine could run. A job whose guess was too high gives the difference back once it is tokenized, and one larger
    than its share of the room counts with the share alone.
    """

    room_tokens: int
    changed: threading.Condition = field(default_factory=threading.Condition)
    stopping: bool = False
    draining: bool = False
    _works: dict[str, Work] = field(default_factory=dict)
    _nudged: bool = False
    _credit: _Credit = field(default_factory=_Credit)
    _arrivals: int = 0

    def reset(self) -> None:
        """A new connection: jobs of the old one went back to the sidecar's queue, credit counts from zero."""
        with self.changed:
            for work in self._works.values():
                work.gone = True
            self._works.clear()
            self._credit = _Credit()

    def admit(self, work: Work) -> bool:
        """A job arrived; false when it is here already and must not run twice."""
        with self.changed:
            self._credit.received_tokens += max(1, work.job.token_estimate)
            if work.job.id in self._works:
                return False
            self._arrivals += 1
            work.arrived = self._arrivals
            self._works[work.job.id] = work
            return True

    def make_ready(self, work: Work) -> None:
        """The job can run whenever the device is free."""
        with self.changed:
            work.ready = True
            self.changed.notify_all()

    def finish(self, work: Work) -> bool:
        """Take an answered job out; false when nobody waits for it any more."""
        with self.changed:
            if work.gone:
                return False
            work.gone = True
            del self._works[work.job.id]
            return True

    def cancel(self, jobs: Iterable[str]) -> int:
        """Drop jobs that nobody waits for; returns how many were here."""
        with self.changed:
            found = [self._works.pop(job) for job in jobs if job in self._works]
            for work in found:
                work.gone = True
            return len(found)

    def nudge(self) -> None:
        """Wake the device's thread: a command waits for it."""
        with self.changed:
            self._nudged = True
            self.changed.notify_all()

    def ready_works(self) -> list[Work]:
        """Jobs that can run, in order of arrival."""
        with self.changed:
            return [work for work in self._works.values() if work.ready]

    def wait(self, timeout_s: float) -> None:
        """Sleep until a job is ready, a command waits, or the worker stops."""
        with self.changed:
            if not self.stopping and not self._nudged and not any(work.ready for work in self._works.values()):
                self.changed.wait(timeout_s)
            self._nudged = False

    def set_draining(self, draining: bool) -> None:
        """While draining no room is offered; what is here is finished."""
        with self.changed:
            self.draining = draining

    @property
    def state(self) -> WorkerState:
        """Ready, draining, or drained once nothing is left."""
        with self.changed:
            if not self.draining:
                return WorkerState.READY
            return WorkerState.DRAINING if self._works else WorkerState.DRAINED

    def stop(self) -> None:
        """Let the device's thread end after its batch."""
        with self.changed:
            self.stopping = True
            self.changed.notify_all()

    def pull(self, *, models: list[str], adapters: list[str]) -> Pull | None:
        """The frame that raises the sidecar's limit, or ``None`` when there is nothing to raise."""
        with self.changed:
            if self.stopping or self.draining:
                return None
            taken = sum(work.share_tokens(self.room_tokens) for work in self._works.values())
            limit = self._credit.received_tokens + self.room_tokens - taken
            if limit <= self._credit.limit_tokens:
                return None
            self._credit.limit_tokens = limit
            return Pull(limit_tokens=limit, models=models, adapters=adapters)

    def models_in_use(self) -> set[str]:
        """Ids of models that a job here was prepared for; jobs that wait for a load hold no model."""
        with self.changed:
            return {work.model.record.id for work in self._works.values() if work.model is not None}

    def adapters_in_use(self) -> set[str]:
        """Digests of adapters that a job here needs."""
        with self.changed:
            return {work.job.adapter_digest for work in self._works.values() if work.job.adapter_digest is not None}

    def generating(self) -> int:
        """Texts in the making."""
        with self.changed:
            return sum(work.job.task is Task.GENERATE and work.started is not None for work in self._works.values())

    def unfinished(self) -> list[str]:
        """Ids of all jobs without an answer."""
        with self.changed:
            return list(self._works)

    def waiting(self) -> tuple[int, int]:
        """(jobs, tokens) that have not started."""
        with self.changed:
            waiting = [work for work in self._works.values() if work.started is None]
            return len(waiting), sum(work.outstanding_tokens for work in waiting)
