"""Whether a measured version is better than what is live. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from loras.evaluation.metrics import PRIMARY
from loras.evaluation.rows import EvaluationKind


class Role(StrEnum):
    """What a measured model is to the evaluation."""

    BASE = "base"
    LIVE = "live"
    NEW = "new"


@dataclass(frozen=True, slots=True)
class Measured:
    """One line of the table: ``metrics`` is empty where ``problem`` says why it could not be measured."""

    role: Role
    name: str
    metrics: dict[str, float]
    problem: str = ""
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """As the run's column keeps it."""
        return {
            "role": self.role.value,
            "name": self.name,
            "metrics": self.metrics,
            "problem": self.problem,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to promote, and the reason in words."""

    promote: bool
    reason: str


def decide(kind: EvaluationKind, lines: Sequence[Measured]) -> Decision:
    """Better means a strictly higher primary metric than the live version's; without a live one, than the base's."""
    primary = PRIMARY[kind]
    by_role = {line.role: line for line in lines}
    new = by_role.get(Role.NEW)
    if new is None or primary not in new.metrics:
        return Decision(False, f"Not promoted: it could not be measured. {new.problem if new else ''}".strip())
    rival = by_role.get(Role.LIVE) or by_role.get(Role.BASE)
    mine = new.metrics[primary]
    if rival is None or primary not in rival.metrics:
        missing = f"{rival.name} could not be measured" if rival else "there is nothing to compare with"
        if by_role.get(Role.LIVE) is not None:
            return Decision(False, f"Not promoted: {missing}, so nobody knows which is better.")
        return Decision(True, f"Promoted: {primary} {mine:.3f}; {missing}.")
    theirs = rival.metrics[primary]
    if mine > theirs:
        return Decision(True, f"Promoted: {primary} {mine:.3f} is better than {theirs:.3f} of {rival.name}.")
    return Decision(False, f"Not promoted: {primary} {mine:.3f} is not better than {theirs:.3f} of {rival.name}.")
