"""A job as the sidecar holds it, from its delivery to its settlement."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from wire.jobs import Job


class Verb(StrEnum):
    """How a delivery is settled (JetStream acknowledgement bodies)."""

    ACK = "+ACK"
    NAK = "-NAK"
    LATER = '-NAK {"delay": 500000000}'
    TERM = "+TERM"
    PROGRESS = "+WPI"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery of a message. ``stream`` is the incarnation of WORK it came from: a stream that was lost and made
    anew counts from 1 again, so an old acknowledgement would settle somebody else's job."""

    ack: str
    stream: str
    sequence: int
    deliveries: int
    last: bool


class Stage(StrEnum):
    """Where a held job is."""

    WAITING = "waiting"
    SENT = "sent"
    DYING = "dying"


@dataclass(slots=True, eq=False)
class HeldJob:
    """``arrived`` is seconds since the epoch, ``sent`` of the loop's clock. ``kills``: workers that died while they
    worked at this job; ``losses``: that died while they had it among others and gave no sign of working at it.
    ``digest`` is of the file its worker needs (of an adapter, or of the version that is its model), ``artifact`` that
    file. ``said``: parts of its text that went out; ``stolen``: it was moved once from a busy worker to an idle one."""

    job: Job
    delivery: Delivery
    arrived: float
    digest: str | None = None
    stage: Stage = Stage.WAITING
    sent: float = 0.0
    artifact: Path | None = None
    attempts: int = 0
    kills: int = 0
    losses: int = 0
    size_bytes: int = 0
    said: list[bytes] = field(default_factory=list)
    stolen: bool = False

    @property
    def tokens(self) -> int:
        """Room the job takes; never below one, so that empty estimates are counted too."""
        return max(1, self.job.token_estimate)
