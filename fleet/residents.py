"""What a worker holds and what left it, as rows of its page."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.rows import WorkerRow
from fleet.telemetry.histograms import LABELS

FEED_ROWS = 30


@dataclass(frozen=True, slots=True)
class Resident:
    """One adapter or model on a worker."""

    digest: str
    name: str
    kind: str
    tier: str
    size_bytes: int
    hits: int
    pinned: bool


@dataclass(frozen=True, slots=True)
class EvictionRow:
    """Something that left a worker, and why."""

    at: dt.datetime
    what: str
    tier: str
    reason: str
    worker: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One bucket of a histogram; ``share`` of the tallest in per cent."""

    label: str
    count: int
    share: float


def bars(counts: Sequence[int]) -> list[Bar]:
    """The bars of a histogram; none of no batches."""
    tallest = max(counts, default=0)
    if not tallest:
        return []
    return [Bar(label, count, 100 * count / tallest) for label, count in zip(LABELS, counts, strict=False)]


def residents_of(row: WorkerRow) -> list[Resident]:
    """Models first, then adapters by use."""
    if row.live is None:
        return []
    models = [Resident(m.digest, m.id, "model", m.tier, m.size_bytes, m.hits, m.pinned) for m in row.live.models]
    adapters = [
        Resident(
            a.digest, a.version or f"another team’s {a.digest[:8]}", "adapter", a.tier, a.size_bytes, a.hits, a.pinned
        )
        for a in sorted(row.live.adapters or [], key=lambda item: -item.hits)
    ]
    return [*models, *adapters]


def evictions_of(rows: Sequence[WorkerRow]) -> list[EvictionRow]:
    """The newest evictions of all ``rows``, newest first."""
    found = [
        EvictionRow(
            at=dt.datetime.fromtimestamp(item.at, dt.UTC),
            what=item.name or f"another team’s {item.kind} {item.digest[:8]}",
            tier=item.tier,
            reason=item.reason,
            worker=f"{row.machine}/{row.worker}",
        )
        for row in rows
        if row.live is not None
        for item in row.live.evicted
    ]
    return sorted(found, key=lambda row: row.at, reverse=True)[:FEED_ROWS]
