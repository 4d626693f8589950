"""Limits of the child processes that touch an upload."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """``timeout_s`` is wall clock for the checks and again for the probe. ``memory_bytes`` bounds the address
    space of each child (RLIMIT_AS), ``file_bytes`` any file it writes (RLIMIT_FSIZE), ``cpu_s`` its processor
    time."""

    timeout_s: float = 60.0
    memory_bytes: int = 4 * GIB
    cpu_s: int = 60
    file_bytes: int = 8 * GIB
    open_files: int = 256
