"""One-minute roll-ups: means and totals over the points of a minute."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fleet.telemetry.points import Point, mean

MINUTE_S = 60
# points of the last second of a minute are written by now
GRACE_S = 5


@dataclass(frozen=True, slots=True)
class MinuteRollup:
    """What one worker did in the minute that starts at ``minute`` (seconds since the epoch).

    Means are over the seconds in which the figure was known and ``None`` where it never was; a minute
    without any point has no roll-up at all.
    """

    minute: int
    seconds: int
    utilization: float | None
    busy: float | None
    memory_used_bytes: int | None
    requests: int
    tokens: int
    errors: int
    batch_rows: float | None
    batch_adapters: float | None
    queue_p50_ms: float | None
    queue_p95_ms: float | None


def roll_up(points: Iterable[Point], *, minutes: Iterable[int]) -> list[MinuteRollup]:
    """Roll-ups of those ``minutes`` (starts, seconds since the epoch) that have points, oldest first."""
    wanted: dict[int, dict[int, Point]] = {minute: {} for minute in minutes}
    for point in points:
        bucket = wanted.get(point.at - point.at % MINUTE_S)
        if bucket is not None:
            bucket[point.at] = point
    return [_minute(minute, list(found.values())) for minute, found in sorted(wanted.items()) if found]


def complete_minutes(now: float, *, after: int, window_s: int) -> list[int]:
    """Starts of the minutes that ended before ``now`` minus grace, later than ``after`` and inside the
    window."""
    last = int(now - GRACE_S) // MINUTE_S * MINUTE_S - MINUTE_S
    # the first minute of the window may be half overwritten already
    first = (int(now) - window_s) // MINUTE_S * MINUTE_S + MINUTE_S
    return list(range(max(first, after + MINUTE_S), last + 1, MINUTE_S))


def _minute(minute: int, points: list[Point]) -> MinuteRollup:
    memory = mean(point.memory_used_bytes for point in points)
    return MinuteRollup(
        minute=minute,
        seconds=len(points),
        utilization=mean(point.utilization for point in points),
        busy=mean(point.busy for point in points),
        memory_used_bytes=None if memory is None else round(memory),
        requests=sum(point.requests for point in points),
        tokens=sum(point.tokens for point in points),
        errors=sum(point.errors for point in points),
        batch_rows=mean(point.batch_rows for point in points),
        batch_adapters=mean(point.batch_adapters for point in points),
        queue_p50_ms=mean(point.queue_p50_ms for point in points),
        queue_p95_ms=mean(point.queue_p95_ms for point in points),
    )
