"""Judges every canary that got requests lately, and holds the ones that left the bounds. Safe to run twice."""

from __future__ import annotations

import time
from collections import defaultdict

import structlog
from django.conf import settings

from fleet.telemetry.usage import read_usage
from loras.metrics.figures import Figures, figures_of, summed
from loras.metrics.policy import Bounds, judge
from loras.models import Alias
from loras.services.holds import hold_canary
from wire.names import parse_address
from wire.usage import Usage

log = structlog.get_logger("loras.canaries")

WINDOW_S = 600.0
# requests that were admitted before a move may still end for so long
SETTLE_S = 2.0
# team/adapter, alias
Place = tuple[str, str]
# when, version number, how it went
Word = tuple[float, int, Figures]


def judge_canaries(*, now: float | None = None) -> int:
    """Hold canaries by the requests since their alias moved, at most ten minutes back; how many were held."""
    at = time.time() if now is None else now
    canaries = _canaries()
    if not canaries:
        return 0
    since = max(at - WINDOW_S, min(alias.moved_at.timestamp() for alias in canaries) + SETTLE_S)
    parts = _by_place(read_usage(since=since, now=at) or [])
    return sum(_judge(alias, parts.get((alias.adapter.full_name, alias.name), [])) for alias in canaries)


def current_bounds() -> Bounds:
    """The bounds of this site's settings."""
    site = settings.SHOAL
    return Bounds(
        least_requests=site.canary_least_requests,
        error_margin=site.canary_error_margin,
        latency_factor=site.canary_latency_factor,
        latency_floor_ms=site.canary_latency_floor_ms,
    )


def _canaries() -> list[Alias]:
    rows = Alias.objects.filter(adapter__deleted_at=None).select_related("adapter__team")
    return [alias for alias in rows.iterator(chunk_size=500) if len(alias.split) > 1]


def _judge(alias: Alias, words: list[Word]) -> bool:
    split = {int(number): int(weight) for number, weight in alias.split.items()}
    began = alias.moved_at.timestamp() + SETTLE_S
    figures = {
        number: summed(figures for at, own, figures in words if own == number and at > began) for number in split
    }
    verdict = judge(split, figures, current_bounds())
    if verdict is None:
        return False
    told = {
        str(number): {
            "requests": found.requests,
            "failed": dict(found.failed),
            "error_rate": found.error_rate,
            "p50_ms": found.p50_ms,
            "p95_ms": found.p95_ms,
        }
        for number, found in figures.items()
    }
    hold = hold_canary(alias=alias, number=verdict.number, reason=verdict.reason, figures=told)
    if hold is not None:
        log.warning("canary held", alias=str(alias), number=verdict.number, reason=verdict.reason)
    return hold is not None


def _by_place(messages: list[Usage]) -> dict[Place, list[Word]]:
    """What gateways said of versions that were reached through an alias, by adapter and alias."""
    found: dict[Place, list[Word]] = defaultdict(list)
    for usage in messages:
        for target in usage.targets:
            address = parse_address(target.target) if target.alias else None
            if address is not None and address.version is not None and target.alias is not None:
                word = usage.at, address.version, figures_of(target)
                found[str(address.name), target.alias].append(word)
    return found
