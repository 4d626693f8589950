"""Limits of the child processes that touch an upload."""

from __future__ import annotations

import math
from dataclasses import dataclass

from confinement.limits import GIB, ProcessLimits

__all__ = ["GIB", "SandboxLimits"]


@dataclass(frozen=True, slots=True)
class SandboxLimits(ProcessLimits):
    """Limits of each child, and ``timeout_s``: wall clock for the checks and the probe together."""

    timeout_s: float = 60.0

    @classmethod
    def for_validation(cls, timeout_s: float, memory_bytes: int) -> SandboxLimits:
        """Limits of a validation of ``timeout_s``: the processor time of one core for all of it, so that the wall
        clock is what ends it."""
        return cls(timeout_s=timeout_s, memory_bytes=memory_bytes, cpu_s=math.ceil(timeout_s))
