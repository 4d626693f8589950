"""Result of a validation: a verdict, or how it ended without one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from wire.reports import Report


class Ending(StrEnum):
    """``decided``: the report is the verdict. ``crashed`` and ``timed_out``: no verdict on the upload; try
    again a bounded number of times, and keep the report (its last row says what happened) if that fails."""

    DECIDED = "decided"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"


@dataclass(frozen=True, slots=True)
class ValidationOutcome:
    """``canonical_path`` is set when the upload passed; its SHA-256 is ``report.digest``. It lies below the
    request's ``work_dir``: move it before removing that."""

    report: Report
    canonical_path: Path | None
    ending: Ending = Ending.DECIDED

    @property
    def accepted(self) -> bool:
        """Whether the version may become ready."""
        return self.canonical_path is not None

    @property
    def needs_input(self) -> bool:
        """Whether ``report.question`` has to be answered first."""
        return self.ending is Ending.DECIDED and not self.report.failed and self.report.question is not None
