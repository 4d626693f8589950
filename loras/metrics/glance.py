"""How an adapter is used, at a glance: the line of its header."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from loras.metrics.figures import Figures
from loras.metrics.queries import read_metrics
from loras.models import Adapter, UsageMinute

MINUTES = 60
WIDTH, HEIGHT = 180, 32


@dataclass(frozen=True, slots=True)
class Glance:
    """The last hour, and when anybody asked last; ``None`` for never within the 30 days that are kept. ``line`` holds
    the points of an SVG polyline in a box of ``WIDTH`` by ``HEIGHT``, requests minute by minute."""

    figures: Figures
    last_request: dt.datetime | None
    line: str

    @property
    def errors(self) -> list[tuple[str, int]]:
        """Error codes and how often, the most frequent first."""
        return sorted(self.figures.failed.items(), key=lambda item: (-item[1], item[0]))


def glance_of(adapter: Adapter) -> Glance:
    """The glance of ``adapter``: one query while it is asked, two while it is not."""
    metrics = read_metrics(adapter, minutes=MINUTES)
    minutes = [0.0] * len(metrics.at)
    for series in metrics.series:
        minutes = [total + rate for total, rate in zip(minutes, series.requests_per_s, strict=True)]
    newest = max((row.last_minute for row in metrics.versions), default=None)
    return Glance(metrics.total, newest or _last_request(adapter), draw_line(minutes))


def draw_line(values: list[float]) -> str:
    """``values`` from left to right, the tallest one pixel below the top; a flat line at the bottom when all are 0."""
    tallest, step = max(values, default=0.0) or 1.0, WIDTH / max(1, len(values) - 1)
    room = HEIGHT - 2
    return " ".join(f"{at * step:.1f},{HEIGHT - 1 - room * value / tallest:.1f}" for at, value in enumerate(values))


def _last_request(adapter: Adapter) -> dt.datetime | None:
    rows = UsageMinute.objects.filter(team=adapter.team.name, target__startswith=f"{adapter.full_name}@")
    return rows.order_by("-minute").values_list("minute", flat=True).first()
