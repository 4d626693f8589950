"""Back-off of a loop whose other side is away: one line when it goes, one when it is back."""

from __future__ import annotations

import asyncio
import random
import time

import structlog

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 15.0

log = structlog.get_logger(__name__)


class Outage:
    """State of one dependency, named in the log lines as ``what``."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._since: float | None = None
        self._failures = 0

    async def wait(self, error: Exception) -> None:
        """Note a failure and sleep: 0.5 s, doubled each time up to 15 s, with jitter."""
        if self._since is None:
            self._since = time.monotonic()
            log.warning(
                "telemetry goes on without it and tries again; serving is not affected",
                away=self._what,
                error=f"{type(error).__name__}: {error}",
            )
        pause = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**self._failures)
        self._failures = min(self._failures + 1, 10)
        await asyncio.sleep(pause * random.uniform(0.7, 1.3))  # noqa: S311  (jitter, not a secret)

    def over(self) -> None:
        """Note a success."""
        if self._since is not None:
            log.info("telemetry has it again", back=self._what, after_s=round(time.monotonic() - self._since, 1))
        self._since, self._failures = None, 0
