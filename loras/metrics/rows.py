"""Usage minutes in the database. Every write can be repeated."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping

from django.db import transaction
from django.utils import timezone

from loras.metrics.figures import Figures, figures_of, summed
from loras.models import UsageMinute
from wire.usage import Usage

KEPT = dt.timedelta(days=30)
PRUNED_ROWS = 5_000
MAX_ROWS_PER_MINUTE = 20_000
_FIGURES = ["requests", "refused", "tokens", "failed", "latency", "latency_sum_ms"]

# team, target, alias
Key = tuple[str, str, str]


def by_target(messages: Iterable[Usage]) -> dict[Key, Figures]:
    """Sums of messages by team, target and alias; bounded, whatever was sent."""
    parts: dict[Key, list[Figures]] = {}
    for usage in messages:
        for target in usage.targets:
            key = target.team[:63], target.target[:200], (target.alias or "")[:63]
            if key in parts or len(parts) < MAX_ROWS_PER_MINUTE:
                parts.setdefault(key, []).append(figures_of(target))
    return {key: summed(found) for key, found in parts.items()}


def save_usage_minute(minute: int, totals: Mapping[Key, Figures]) -> int:
    """Insert or replace the rows of one minute (seconds since the epoch); how many were written.

    A row is never replaced by one of fewer requests: after Redis was emptied a minute knows only its rest.
    """
    start = dt.datetime.fromtimestamp(minute, dt.UTC)
    with transaction.atomic():
        known = {
            (team, target, alias): requests
            for team, target, alias, requests in UsageMinute.objects.filter(minute=start).values_list(
                "team", "target", "alias", "requests"
            )
        }
        rows = [
            UsageMinute(
                team=key[0],
                target=key[1],
                alias=key[2],
                minute=start,
                requests=found.requests,
                refused=found.refused,
                tokens=found.tokens,
                failed=dict(found.failed),
                latency=found.latency,
                latency_sum_ms=found.latency_sum_ms,
            )
            for key, found in totals.items()
            if found.requests > known.get(key, 0)
        ]
        UsageMinute.objects.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["team", "target", "alias", "minute"],
            update_fields=_FIGURES,
            batch_size=500,
        )
    return len(rows)


def prune_usage() -> int:
    """Delete minutes older than 30 days, some thousand at a time; how many."""
    old = UsageMinute.objects.filter(minute__lt=timezone.now() - KEPT).values_list("pk", flat=True)[:PRUNED_ROWS]
    deleted, _ = UsageMinute.objects.filter(pk__in=list(old)).delete()
    return deleted


def figures_of_row(row: UsageMinute) -> Figures:
    """The figures that a row keeps."""
    return Figures(
        requests=row.requests,
        refused=row.refused,
        tokens=row.tokens,
        failed=row.failed,
        latency=list(row.latency),
        latency_sum_ms=row.latency_sum_ms,
    )
