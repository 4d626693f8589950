"""Which worker gets which job now: one pass over the workers with room, the least loaded first."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from sidecar import metrics
from sidecar.dispatch.desk import Desk
from sidecar.jobs import HeldJob, Stage
from sidecar.queueing.local import WorkerView
from sidecar.sockets.connection import WorkerConnection
from wire import frames

BATCH_BYTES = 16 * 1024 * 1024
FRAME_JOBS = 512
# Device threads give a sign every second; one that is late gets nothing more until it is heard again.
SILENT_S = 3.0
# Jobs that wait on a worker for a model to load could run on others meanwhile, and fill its room for nothing.
COLD_RATION_JOBS = 16


@dataclass(slots=True)
class _Pick:
    """A worker in one pass, and what it was given."""

    connection: WorkerConnection
    servable: frozenset[str]
    resident: frozenset[str]
    load_tokens: int
    jobs: list[HeldJob] = field(default_factory=list)
    full: bool = False

    @property
    def idle(self) -> bool:
        return not self.connection.unfinished


def gives_signs(connection: WorkerConnection) -> bool:
    """Whether the worker was heard lately enough to get more jobs."""
    return connection.silent_s(_loop_time()) < SILENT_S


def takes_jobs(connection: WorkerConnection) -> bool:
    """Whether the worker can be given something now."""
    ready = connection.open and not connection.draining and connection.room_tokens > 0
    return ready and not connection.isolated and gives_signs(connection)


def assign(desk: Desk, connections: Iterable[WorkerConnection]) -> None:
    """Hand over as many jobs as the workers' credit allows, and send them."""
    if not len(desk.queue):
        return
    now, loop_now = time.time(), _loop_time()
    picks = [
        _Pick(one, one.servable(loop_now), one.resident(loop_now), one.load_tokens)
        for one in connections
        if takes_jobs(one)
    ]
    everyone = list(connections)
    while open_picks := [one for one in picks if not one.full]:
        pick = min(open_picks, key=lambda one: one.load_tokens)
        was_idle = pick.idle
        held = _give(desk, pick, picks, everyone, now)
        if held is None:
            pick.full = True
        elif was_idle:
            # What was kept for it may go to others, now that it has something to do.
            for other in picks:
                other.full = False
    for pick in picks:
        send_jobs(pick.connection, pick.jobs)
    metrics.QUEUED_JOBS.set(len(desk.queue))


def _view(pick: _Pick, picks: list[_Pick], everyone: list[WorkerConnection]) -> WorkerView:
    connection = pick.connection
    if len(everyone) == 1:
        return WorkerView(
            pick.servable,
            pick.resident,
            connection.adapters,
            idle=pick.idle,
            rationed=_rationed(connection, pick.resident),
        )
    # An idle worker leaves alone what another idle one holds; a busy one what any other with room holds.
    holders = (one.connection for one in picks if one is not pick and (one.idle or not pick.idle))
    others = [one for one in everyone if one is not connection and one.open and not one.draining]
    return WorkerView(
        servable=pick.servable,
        resident_models=pick.resident,
        adapters=connection.adapters,
        elsewhere=frozenset().union(*(one.adapters for one in holders)) - connection.adapters,
        idle=pick.idle,
        models_elsewhere=frozenset().union(*(one.holds | one.jobs_of.keys() for one in others)) - pick.resident,
        rationed=_rationed(connection, pick.resident),
    )


def _rationed(connection: WorkerConnection, resident: frozenset[str]) -> frozenset[str]:
    return frozenset(
        model for model, jobs in connection.jobs_of.items() if jobs >= COLD_RATION_JOBS and model not in resident
    )


def _give(desk: Desk, pick: _Pick, picks: list[_Pick], everyone: list[WorkerConnection], now: float) -> HeldJob | None:
    connection = pick.connection
    if connection.room_tokens <= 0 or connection.isolated:
        return None
    view = _view(pick, picks, everyone)
    while True:
        entry = desk.queue.take(view, now)
        if entry is None:
            return None
        held = desk.held[entry.id]
        # pathlib would raise where the folder itself cannot be read.
        if held.artifact is None or os.path.isfile(held.artifact):
            break
        # The file went away while the job waited: fetched once more, and the next job takes the place.
        desk.wait_for_artifact(held)
    held.stage = Stage.SENT
    connection.give(held, _loop_time())
    pick.load_tokens += held.tokens
    pick.jobs.append(held)
    return held


def send_jobs(connection: WorkerConnection, jobs: list[HeldJob]) -> None:
    """Send jobs that were counted as given, in frames of bounded size."""
    now = time.time()
    frame: list[HeldJob] = []
    size = 0
    for held in jobs:
        metrics.LOCAL_WAIT.observe(max(0.0, now - held.arrived))
        if frame and (size + held.size_bytes > BATCH_BYTES or len(frame) >= FRAME_JOBS):
            connection.send(_batch(frame))
            frame, size = [], 0
        frame.append(held)
        size += held.size_bytes
    if frame:
        connection.send(_batch(frame))


def _batch(frame: list[HeldJob]) -> frames.Batch:
    artifacts = {
        held.digest: str(held.artifact) for held in frame if held.digest is not None and held.artifact is not None
    }
    return frames.Batch(jobs=[held.job for held in frame], artifacts=artifacts)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
