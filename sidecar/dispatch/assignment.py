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
from wire.jobs import EmbeddingInputs
from wire.registry import ModelRecord

BATCH_BYTES = 16 * 1024 * 1024
FRAME_JOBS = 512
# Device threads give a sign every second; one that is late gets nothing more until it is heard again.
SILENT_S = 3.0


@dataclass(slots=True)
class _Pick:
    """A worker in one pass: its view without ``idle``, and what it was given."""

    connection: WorkerConnection
    servable: frozenset[str]
    resident: frozenset[str]
    elsewhere: frozenset[str]
    jobs: list[HeldJob] = field(default_factory=list)
    load_tokens: int = 0
    full: bool = False


def servable_models(connection: WorkerConnection, models: Iterable[ModelRecord]) -> frozenset[str]:
    """Base models of the pool whose tasks the worker does, less those it could not load a moment ago."""
    now, tasks = _loop_time(), set(connection.hello.tasks)
    return frozenset(one.id for one in models if set(one.tasks) & tasks and not connection.bars(one.id, now))


def resident_models(connection: WorkerConnection, models: Iterable[ModelRecord]) -> frozenset[str]:
    """Base models the worker says it holds; workers may name them by id or digest."""
    held = frozenset(one.id for one in models if one.id in connection.models or one.digest in connection.models)
    return held & servable_models(connection, models)


def gives_signs(connection: WorkerConnection) -> bool:
    """Whether the worker was heard lately enough to get more jobs."""
    return connection.silent_s(_loop_time()) < SILENT_S


def assign(desk: Desk, connections: Iterable[WorkerConnection], models: list[ModelRecord]) -> None:
    """Hand over as many jobs as the workers' credit allows, and send them."""
    if not len(desk.queue):
        return
    now = time.time()
    picks = _picks(list(connections), models)
    while True:
        open_picks = [one for one in picks if not one.full]
        if not open_picks:
            break
        pick = min(open_picks, key=lambda one: one.load_tokens)
        held = _give(desk, pick, now)
        if held is None:
            pick.full = True
    for pick in picks:
        _send(desk, pick)
    metrics.QUEUED_JOBS.set(len(desk.queue))


def _picks(connections: list[WorkerConnection], models: list[ModelRecord]) -> list[_Pick]:
    ready = [
        one
        for one in connections
        if one.open and not one.draining and one.room_tokens > 0 and not one.isolated and gives_signs(one)
    ]
    picks = []
    for one in ready:
        others = (other.adapters for other in ready if other is not one)
        picks.append(
            _Pick(
                connection=one,
                servable=servable_models(one, models),
                resident=resident_models(one, models),
                elsewhere=frozenset().union(*others) - one.adapters,
                load_tokens=sum(held.tokens for held in one.unfinished.values()),
            )
        )
    return picks


def _give(desk: Desk, pick: _Pick, now: float) -> HeldJob | None:
    connection = pick.connection
    if connection.room_tokens <= 0 or connection.isolated:
        return None
    view = WorkerView(
        servable=pick.servable,
        resident_models=pick.resident,
        adapters=connection.adapters,
        elsewhere=pick.elsewhere,
        idle=not connection.unfinished,
    )
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


def _send(desk: Desk, pick: _Pick) -> None:
    now = time.time()
    frame: list[HeldJob] = []
    size = 0
    for held in pick.jobs:
        metrics.LOCAL_WAIT.observe(max(0.0, now - held.arrived))
        job_bytes = _bytes_of(held)
        if frame and (size + job_bytes > BATCH_BYTES or len(frame) >= FRAME_JOBS):
            pick.connection.send(_batch(frame))
            frame, size = [], 0
        frame.append(held)
        size += job_bytes
    if frame:
        pick.connection.send(_batch(frame))


def _batch(frame: list[HeldJob]) -> frames.Batch:
    artifacts = {
        held.job.adapter_digest: str(held.artifact)
        for held in frame
        if held.job.adapter_digest is not None and held.artifact is not None
    }
    return frames.Batch(jobs=[held.job for held in frame], artifacts=artifacts)


def _bytes_of(held: HeldJob) -> int:
    inputs = held.job.inputs
    texts = inputs.texts if isinstance(inputs, EmbeddingInputs) else []
    return 512 + 4 * sum(len(text) for text in texts)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
