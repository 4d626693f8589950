"""Runs one validation: the checks in a limited child, then the probe, and merges both into one report."""

from __future__ import annotations

from pathlib import Path

from loras.validation.limits import SandboxLimits
from loras.validation.outcome import Ending, ValidationOutcome
from wire.validation import ValidationRequest

__all__ = ["Ending", "SandboxLimits", "ValidationOutcome", "run_validation"]


def run_validation(
    request: ValidationRequest, *, limits: SandboxLimits, probe_socket: Path | None = None
) -> ValidationOutcome:
    """Judge one upload: at most about twice ``limits.timeout_s``, and no exception for anything it holds.

    ``probe_socket`` is the warm probe server's; without it ``SHOAL_PROBE_SOCKET`` names it, and without that
    a child is started.
    Raises ``OSError`` when ``request.work_dir`` is not a directory.
    """
    raise NotImplementedError
