"""How far this machine's clock is from the queue server's: deadlines are moments of other machines' clocks."""

from __future__ import annotations

from datetime import datetime

import msgspec
import structlog

from wire.jobs import Job

log = structlog.get_logger(__name__)

LOUD_S = 5.0
# Below this the round trip's uncertainty is as large as what would be corrected.
LEAST_S = 0.25
MAX_ROUND_TRIP_S = 1.0


class ServerClock:
    """``offset_s`` is the server's time less ours, 0 until it was measured."""

    def __init__(self) -> None:
        self.offset_s = 0.0
        self._told_s = 0.0

    def measure(self, server_time: str, sent: float, received: float) -> None:
        """Take over the time in an answer (RFC 3339) to a request sent and answered at these moments of ours."""
        if received - sent > MAX_ROUND_TRIP_S:
            return
        try:
            there = datetime.fromisoformat(server_time).timestamp()
        except ValueError:
            return
        self.offset_s = there - (sent + received) / 2
        if abs(self.offset_s - self._told_s) < LOUD_S:
            return
        self._told_s = self.offset_s
        if abs(self.offset_s) >= LOUD_S:
            log.error("this machine's clock differs from the queue server's; deadlines are corrected, set up NTP",
                      behind_s=round(self.offset_s, 1))  # fmt: skip
        else:
            log.info("this machine's clock agrees with the queue server's again", behind_s=round(self.offset_s, 1))

    def localized(self, job: Job) -> Job:
        """``job`` with its moments as this machine's clock, and its workers', would tell them."""
        if abs(self.offset_s) < LEAST_S:
            return job
        return msgspec.structs.replace(
            job, deadline=job.deadline - self.offset_s, published=job.published - self.offset_s
        )
