"""Figures of one adapter over a range of minutes: by version, by alias, and minute by minute."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from django.utils import timezone

from loras.metrics.figures import Figures, summed
from loras.metrics.rows import figures_of_row
from loras.models import Adapter, UsageMinute
from wire.names import parse_address

MAX_MINUTES = 7 * 24 * 60
MAX_POINTS = 240
MAX_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class TargetFigures:
    """Figures of one version, through one alias (``""``: by number) or through all (``None``). ``last_minute`` is when
    it was last asked."""

    number: int
    alias: str | None
    figures: Figures
    last_minute: dt.datetime


@dataclass(frozen=True, slots=True)
class Series:
    """One version's points, each over ``step_minutes``, oldest first; ``at`` are their starts, seconds since the
    epoch. Rates are a second; ``None`` where nothing was asked."""

    number: int
    requests_per_s: list[float]
    error_rate: list[float | None]
    p50_ms: list[float | None]
    p95_ms: list[float | None]


@dataclass(frozen=True, slots=True)
class AdapterMetrics:
    """Everything the Metrics tab shows of the last ``minutes``."""

    minutes: int
    step_minutes: int
    at: list[int]
    versions: list[TargetFigures]
    aliases: list[TargetFigures]
    series: list[Series]

    @property
    def total(self) -> Figures:
        return summed(row.figures for row in self.versions)


def read_metrics(adapter: Adapter, *, minutes: int) -> AdapterMetrics:
    """Figures of ``adapter`` over the last ``minutes``, the running one included."""
    now = timezone.now()
    step = max(1, -(-minutes // MAX_POINTS))
    last = int(now.timestamp()) // 60 * 60
    first = (last - (minutes - 1) * 60) // (step * 60) * step * 60
    rows = UsageMinute.objects.filter(
        team=adapter.team.name,
        target__startswith=f"{adapter.full_name}@",
        minute__gte=dt.datetime.fromtimestamp(first, dt.UTC),
    ).order_by("minute")[:MAX_ROWS]
    found = [(number, row) for row in rows if (number := _number(row.target)) is not None]
    at = list(range(first, last + 1, step * 60))
    return AdapterMetrics(
        minutes=minutes,
        step_minutes=step,
        at=at,
        versions=_by_version(found),
        aliases=_by_alias(found),
        series=_series(found, at, step),
    )


def _number(target: str) -> int | None:
    address = parse_address(target)
    return address.version if address is not None else None


def _by_version(found: Iterable[tuple[int, UsageMinute]]) -> list[TargetFigures]:
    groups: dict[int, list[UsageMinute]] = defaultdict(list)
    for number, row in found:
        groups[number].append(row)
    return [_target(number, None, rows) for number, rows in sorted(groups.items(), reverse=True)]


def _by_alias(found: Iterable[tuple[int, UsageMinute]]) -> list[TargetFigures]:
    groups: dict[tuple[str, int], list[UsageMinute]] = defaultdict(list)
    for number, row in found:
        groups[row.alias, number].append(row)
    return [_target(number, alias, rows) for (alias, number), rows in sorted(groups.items())]


def _target(number: int, alias: str | None, rows: list[UsageMinute]) -> TargetFigures:
    return TargetFigures(number, alias, summed(map(figures_of_row, rows)), max(row.minute for row in rows))


def _series(found: Iterable[tuple[int, UsageMinute]], at: list[int], step: int) -> list[Series]:
    place = {start: index for index, start in enumerate(at)}
    cells: dict[int, dict[int, list[Figures]]] = defaultdict(lambda: defaultdict(list))
    for number, row in found:
        start = int(row.minute.timestamp()) // (step * 60) * step * 60
        if start in place:
            cells[number][place[start]].append(figures_of_row(row))
    series = []
    for number, points in sorted(cells.items()):
        figures = [summed(points[index]) if index in points else None for index in range(len(at))]
        series.append(
            Series(
                number=number,
                requests_per_s=[round(cell.requests / (step * 60), 4) if cell else 0.0 for cell in figures],
                error_rate=[cell.error_rate if cell else None for cell in figures],
                p50_ms=[cell.p50_ms if cell else None for cell in figures],
                p95_ms=[cell.p95_ms if cell else None for cell in figures],
            )
        )
    return series
