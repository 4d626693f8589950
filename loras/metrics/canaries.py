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


def judge_canaries(*, now: float | None = None) -> int:
    """Hold canaries by the requests since their alias moved, at most ten minutes back; how many were held."""
    at = time.time() if now is None else now
    messages = read_usage(since=at - WINDOW_S, now=at)
    if not messages:
        return 0
    held = 0
    for place in sorted(_split_places(messages)):
        name, alias_name = place
        team, _, adapter = name.partition("/")
        alias = Alias.objects.filter(
            adapter__team__name=team, adapter__name=adapter, adapter__deleted_at=None, name=alias_name
        ).first()
        if alias is None or len(alias.split) < 2:
            continue
        held += _judge(alias, place, [m for m in messages if m.at > alias.moved_at.timestamp() + SETTLE_S])
    return held


def current_bounds() -> Bounds:
    """The bounds of this site's settings."""
    site = settings.SHOAL
    return Bounds(
        least_requests=site.canary_least_requests,
        error_margin=site.canary_error_margin,
        latency_factor=site.canary_latency_factor,
        latency_floor_ms=site.canary_latency_floor_ms,
    )


def _judge(alias: Alias, place: Place, messages: list[Usage]) -> bool:
    split = {int(number): int(weight) for number, weight in alias.split.items()}
    figures = _figures(place, messages)
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
        log.warning("canary held", adapter=place[0], alias=place[1], number=verdict.number, reason=verdict.reason)
    return hold is not None


def _split_places(messages: list[Usage]) -> set[Place]:
    """Aliases through which at least one version was asked."""
    return {
        (target.target.partition("@")[0], target.alias)
        for usage in messages
        for target in usage.targets
        if target.alias and "@" in target.target
    }


def _figures(place: Place, messages: list[Usage]) -> dict[int, Figures]:
    """Figures by version number of what came through one alias."""
    name, alias = place
    parts: dict[int, list[Figures]] = defaultdict(list)
    for usage in messages:
        for target in usage.targets:
            address = parse_address(target.target) if target.alias == alias else None
            if address is not None and address.version is not None and str(address.name) == name:
                parts[address.version].append(figures_of(target))
    return {number: summed(found) for number, found in parts.items()}
