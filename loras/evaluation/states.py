"""States of an evaluation, declared once."""

from __future__ import annotations

from enum import StrEnum


class RunState(StrEnum):
    """``waiting`` for its version to be ready; ``failed`` says that it could not be measured, not that it is bad."""

    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


TRANSITIONS: dict[RunState, frozenset[RunState]] = {
    RunState.WAITING: frozenset({RunState.QUEUED, RunState.FAILED}),
    RunState.QUEUED: frozenset({RunState.RUNNING, RunState.FAILED}),
    # back to queued when its process died
    RunState.RUNNING: frozenset({RunState.QUEUED, RunState.DONE, RunState.FAILED}),
    RunState.DONE: frozenset(),
    RunState.FAILED: frozenset(),
}
RUN_STATE_NAMES = [state.value for state in RunState]
UNFINISHED = frozenset(state for state, to in TRANSITIONS.items() if to)
