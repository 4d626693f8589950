"""Limits of the child processes that touch an upload."""

from __future__ import annotations

import math
import resource
from dataclasses import dataclass

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """``timeout_s`` is wall clock for the checks and the probe together. ``memory_bytes`` bounds the address
    space of each child (RLIMIT_AS), ``file_bytes`` any file it writes (RLIMIT_FSIZE), ``cpu_s`` its processor
    time."""

    timeout_s: float = 60.0
    memory_bytes: int = 4 * GIB
    cpu_s: int = 60
    file_bytes: int = 8 * GIB
    open_files: int = 256

    @classmethod
    def for_validation(cls, timeout_s: float, memory_bytes: int) -> SandboxLimits:
        """Limits of a validation of ``timeout_s``: the processor time of one core for all of it, so that the wall
        clock is what ends it."""
        return cls(timeout_s=timeout_s, memory_bytes=memory_bytes, cpu_s=math.ceil(timeout_s))

    def arguments(self) -> list[str]:
        """These limits as a child's command-line arguments."""
        return [
            f"--memory-bytes={self.memory_bytes}",
            f"--cpu-s={self.cpu_s}",
            f"--file-bytes={self.file_bytes}",
            f"--open-files={self.open_files}",
        ]


def limit_this_process(*, memory_bytes: int, cpu_s: int, file_bytes: int, open_files: int) -> None:
    """Bound the calling process for good, before it reads anything it was sent."""
    for kind, amount in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, open_files),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        allowed = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
        resource.setrlimit(kind, (allowed, allowed))
