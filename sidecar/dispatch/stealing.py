"""An idle worker takes over what a busy one was given and has not begun."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sidecar import metrics
from sidecar.dispatch.assignment import send_jobs, takes_jobs
from sidecar.dispatch.desk import Desk
from sidecar.jobs import HeldJob
from sidecar.sockets.connection import WorkerConnection
from wire import frames

# Shorter than this the busy worker may have begun without having said so.
UNBEGUN_S = 0.05
LEAST_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Given:
    """A job that a worker has and has not named as running."""

    id: str
    model: str
    adapter: str | None
    tokens: int
    waited_s: float


def choose_stolen(given: Sequence[Given], holds: frozenset[str], adapters: frozenset[str], room: int) -> list[str]:
    """Which jobs of a busy worker an idle one takes: half of what waits there, the youngest first.

    ``holds`` and ``adapters`` are what the idle worker has, ``room`` is its credit in tokens. Jobs for adapters that it
    has are taken before others; jobs that came a moment ago, and a rest not worth the trouble, stay.
    """
    movable = [one for one in given if one.waited_s >= UNBEGUN_S and one.model in holds]
    waiting = sum(one.tokens for one in movable)
    if waiting < LEAST_TOKENS:
        return []
    budget = min(waiting // 2, room)
    chosen: list[str] = []
    for one in sorted(movable, key=lambda one: (one.adapter is not None and one.adapter not in adapters, one.waited_s)):
        if one.tokens <= budget:
            chosen.append(one.id)
            budget -= one.tokens
    return chosen


def steal(desk: Desk, connections: Iterable[WorkerConnection], now: float) -> int:
    """Let each idle worker take half of what waits on the most loaded one; how many jobs moved.

    The busy worker is told that nobody waits for them: one that it began meanwhile runs twice, and its answer there
    is not looked at.
    """
    workers = list(connections)
    moved = 0
    for thief in workers:
        if thief.unfinished or not takes_jobs(thief):
            continue
        others = [one for one in workers if one is not thief and one.open and not one.isolated]
        victim = max(others, key=lambda one: one.load_tokens, default=None)
        if victim is None or victim.load_tokens < LEAST_TOKENS:
            continue
        moved += _move(desk, victim, thief, now)
    return moved


def _move(desk: Desk, victim: WorkerConnection, thief: WorkerConnection, now: float) -> int:
    given = [
        Given(job_id, held.job.model, held.job.adapter_digest, held.tokens, now - held.sent)
        for job_id, held in victim.unfinished.items()
        if job_id not in victim.running and not held.kills and not held.said and not held.stolen and desk.owns(held)
    ]
    chosen = choose_stolen(given, thief.resident(now), thief.adapters, thief.room_tokens)
    if not chosen:
        return 0
    jobs: list[HeldJob] = []
    for job_id in chosen:
        held = victim.take(job_id)
        if held is not None:
            held.stolen = True
            thief.give(held, now)
            jobs.append(held)
    victim.send(frames.Cancel(jobs=chosen))
    send_jobs(thief, jobs)
    metrics.JOBS_STOLEN.inc(len(jobs))
    return len(jobs)
