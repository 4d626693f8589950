"""States of a version and of an upload, declared once: transitions, time-outs, words for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    RECEIVING = "receiving"
    VALIDATING = "validating"
    READY = "ready"
    NEEDS_INPUT = "needs_input"
    REJECTED = "rejected"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True)
class StateRule:
    """Where a state may go, how long it may wait there (seconds), and what follows a time-out."""

    to: frozenset[State]
    timeout_s: float | None = None
    on_timeout: State | None = None


TABLE: dict[State, StateRule] = {
    State.RECEIVING: StateRule(frozenset({State.VALIDATING, State.REJECTED}), 24 * 3600, State.REJECTED),
    # how long a validation may take is a setting, SHOAL_SWEEP_AFTER_S: the sweeper then starts it again, or ends it
    State.VALIDATING: StateRule(frozenset({State.VALIDATING, State.READY, State.NEEDS_INPUT, State.REJECTED})),
    State.NEEDS_INPUT: StateRule(frozenset({State.VALIDATING, State.REJECTED}), 7 * 24 * 3600, State.REJECTED),
    State.READY: StateRule(frozenset({State.RETIRED})),
    State.REJECTED: StateRule(frozenset()),
    # a person may take it back into service while its bytes are kept
    State.RETIRED: StateRule(frozenset({State.READY})),
}

STATE_NAMES = [state.value for state in State]
FINAL = frozenset({State.READY, State.REJECTED, State.RETIRED})


def _check_table() -> None:
    for state in State:
        rule = TABLE[state]
        if (rule.timeout_s is None) != (rule.on_timeout is None):
            raise ValueError(f"{state}: a time-out needs a target and a target a time-out")
        if rule.on_timeout is not None and rule.on_timeout not in rule.to:
            raise ValueError(f"{state}: time-out leads to {rule.on_timeout}, which is no allowed transition")
        if state not in FINAL | {State.VALIDATING} and rule.timeout_s is None:
            raise ValueError(f"{state}: every waiting state has a time-out")


_check_table()
