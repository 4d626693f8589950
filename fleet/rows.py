"""A worker as pages and the REST API show it: live figures where Redis has them, else the last word in the database."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from fleet import payloads
from fleet.ids import parse_worker_key, worker_key
from fleet.models import Worker
from fleet.naming import name_book
from fleet.rendering import digests_of, render_worker
from fleet.telemetry.reader import LiveView, live_reader
from fleet.telemetry.states import STALE_AFTER_S, WorkerState
from wire.telemetry import DeviceSample


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """``live`` is absent for a worker that only the database remembers."""

    key: str
    machine: str
    worker: str
    pool: str
    state: str
    device: DeviceSample
    last_seen: float
    last_seen_s: float
    live: payloads.Worker | None

    @property
    def stale(self) -> bool:
        """Whether the worker was silent for more than 5 s: its figures are old and its state is unknown."""
        return self.last_seen_s > STALE_AFTER_S

    @property
    def ready(self) -> bool:
        """Whether the worker takes jobs right now, as far as anybody knows."""
        return not self.stale and self.state == "ready"


@dataclass(frozen=True, slots=True)
class FleetRows:
    """Every known worker by machine and name; ``available`` is false when Redis could not be read."""

    at: float
    available: bool
    workers: list[WorkerRow]


def list_workers(*, teams: frozenset[str]) -> FleetRows:
    """Workers for a viewer in ``teams``: first those with live data, then those of the database alone."""
    view = live_reader().read()
    _learn(view.states)
    now = time.time()
    rows = [_live_row(state, now=now, teams=teams) for state in view.states]
    known = {row.key for row in rows}
    # without Redis the database is all there is; with it, a worker it forgot is history and not part of the fleet
    stored = [] if view.available and view.states else Worker.objects.all()[:200]
    rows += [row for row in (_stored_row(worker, now) for worker in stored) if row.key not in known]
    return FleetRows(now, view.available, rows)


def find_worker(key: str, *, teams: frozenset[str]) -> WorkerRow | None:
    """One worker, live or remembered; ``None`` when there never was one of this key."""
    names = parse_worker_key(key)
    if names is None:
        return None
    view: LiveView = live_reader().read()
    now = time.time()
    state = view.state(key)
    if state is not None:
        _learn([state])
        return _live_row(state, now=now, teams=teams)
    worker = Worker.objects.filter(machine=names[0], worker_id=names[1]).first()
    return None if worker is None else _stored_row(worker, now)


def _learn(states: Sequence[WorkerState]) -> None:
    book = name_book()
    book.learn(book.missing(digests_of(states)))


def _live_row(state: WorkerState, *, now: float, teams: frozenset[str]) -> WorkerRow:
    return WorkerRow(
        key=state.key,
        machine=state.machine,
        worker=state.worker,
        pool=state.pool,
        state=state.state,
        device=state.device,
        last_seen=state.received,
        last_seen_s=max(0.0, now - state.received),
        live=render_worker(state, names=name_book(), teams=teams),
    )


def _stored_row(worker: Worker, now: float) -> WorkerRow:
    seen = worker.last_seen_at.timestamp()
    device = {"id": "unknown", "kind": "unknown", "name": "unknown device", **worker.device}
    return WorkerRow(
        key=worker_key(worker.machine, worker.worker_id),
        machine=worker.machine,
        worker=worker.worker_id,
        pool=worker.pool,
        state=worker.state,
        device=msgspec.convert(device, DeviceSample),
        last_seen=seen,
        last_seen_s=max(0.0, now - seen),
        live=None,
    )
