"""Whether a canary may go on: its error rate and latency against the version that serves most.

Both tests compare proportions by Wilson score intervals (Wilson 1927; Brown, Cai and DasGupta 2001), which hold their
level for small samples and for rates near 0, where a canary has to be judged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from loras.metrics.figures import Figures
from loras.metrics.histogram import slower_than


@dataclass(frozen=True, slots=True)
class Bounds:
    """``least_requests``: fewer say nothing. ``error_margin``: how much higher (0 to 1) an error rate may be.
    ``latency_factor`` and ``latency_floor_ms``: p95 may grow to the larger of factor times and floor above the
    majority's. ``z`` is the quantile of the intervals (1.96 is 95 %)."""

    least_requests: int = 20
    error_margin: float = 0.02
    latency_factor: float = 2.0
    latency_floor_ms: float = 50.0
    z: float = 1.96


@dataclass(frozen=True, slots=True)
class Verdict:
    """A version that should be held, and why in words."""

    number: int
    reason: str


def judge(split: Mapping[int, int], figures: Mapping[int, Figures], bounds: Bounds) -> Verdict | None:
    """The worst canary of ``split`` that left the bounds, or ``None``. Pure: the same figures, the same verdict.

    The majority is the version of the largest weight, the older of equals; it is never held.
    """
    if len(split) < 2:
        return None
    majority = max(split, key=lambda number: (split[number], -number))
    base = figures.get(majority, Figures())
    found = []
    for number in sorted(set(split) - {majority}):
        canary = figures.get(number, Figures())
        if canary.judged < bounds.least_requests:
            continue
        reason = _too_many_errors(canary, base, majority, bounds) or _too_slow(canary, base, majority, bounds)
        if reason:
            found.append((canary.error_rate or 0.0, Verdict(number, reason)))
    return max(found, key=lambda item: item[0])[1] if found else None


def wilson(successes: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """Lower and upper bound of a proportion; (0, 1) of no trials."""
    if trials <= 0:
        return 0.0, 1.0
    share = successes / trials
    scale = 1 + z * z / trials
    middle = (share + z * z / (2 * trials)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, middle - half), min(1.0, middle + half)


def _too_many_errors(canary: Figures, base: Figures, majority: int, bounds: Bounds) -> str:
    lower, _ = wilson(canary.failures, canary.judged, bounds.z)
    _, upper = wilson(base.failures, base.judged, bounds.z)
    # a majority without traffic cannot excuse a canary that fails more often than not
    allowed = upper if base.judged >= bounds.least_requests else 0.5
    if lower <= allowed + bounds.error_margin:
        return ""
    codes = ", ".join(sorted(canary.failed, key=lambda code: -canary.failed[code])[:3])
    return (
        f"{canary.failures} of {canary.judged} requests failed ({codes}), at least {lower:.1%} at 95 % confidence; "
        f"@{majority} failed {base.failures} of {base.judged}, at most {upper:.1%}."
    )


def _too_slow(canary: Figures, base: Figures, majority: int, bounds: Bounds) -> str:
    p95_ms, answered = base.p95_ms, sum(canary.latency)
    if p95_ms is None or sum(base.latency) < bounds.least_requests or answered < bounds.least_requests:
        return ""
    limit_ms = max(p95_ms * bounds.latency_factor, p95_ms + bounds.latency_floor_ms)
    slow = slower_than(canary.latency, limit_ms)
    lower, _ = wilson(slow, answered, bounds.z)
    # more than 5 % above the limit is what "its p95 is above the limit" means
    if lower <= 0.05:
        return ""
    return (
        f"p95 is {canary.p95_ms:.0f} ms over {answered} answers, @{majority}'s is {p95_ms:.0f} ms: {slow} answers took "
        f"longer than the bound of {limit_ms:.0f} ms."
    )
