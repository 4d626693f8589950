"""Whose turn the device is: batches of rows, or a step of the texts in the making."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Turns:
    """Both get the same seconds of the device while both have work; what one did not use is not saved up."""

    ahead_s: float = 0.0
    """By how much batches had more of the device than steps."""

    def step_next(self, *, batch: bool, step: bool) -> bool:
        """Whether a step comes next, given which of the two have work."""
        if not (batch and step):
            self.ahead_s = 0.0
            return step
        return self.ahead_s >= 0

    def count(self, seconds: float, *, step: bool) -> None:
        """Note how long a turn took."""
        self.ahead_s += -seconds if step else seconds
