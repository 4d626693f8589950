"""Where the versions of an adapter are held right now, as the workers said last."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from fleet.rows import list_workers
from loras.page_rows import AdapterPage


@dataclass(frozen=True, slots=True)
class ResidentRow:
    """One version on one worker. ``stale``: the worker was silent for more than five seconds."""

    number: int
    worker: str
    title: str
    tier: str
    since: dt.datetime
    hits: int
    pinned: bool
    stale: bool


def residency_of(adapter: AdapterPage, team: str) -> list[ResidentRow] | None:
    """Every place, newest version first; ``None`` when the live figures cannot be read."""
    fleet = list_workers(teams=frozenset({team}))
    if not fleet.available:
        return None
    numbers = {version.digest: version.number for version in adapter.versions if version.digest}
    rows = []
    for worker in fleet.workers:
        held = [(item.digest, item.tier, item.loaded, item.hits, item.pinned) for item in
                (worker.live.adapters or [] if worker.live else [])]  # fmt: skip
        held += [(item.digest, item.tier, item.loaded or 0.0, item.hits, item.pinned) for item in
                 (worker.live.models if worker.live else [])]  # fmt: skip
        rows += [
            ResidentRow(
                number=numbers[digest],
                worker=worker.key,
                title=f"{worker.machine}/{worker.worker}",
                tier=tier,
                since=dt.datetime.fromtimestamp(loaded, dt.UTC),
                hits=hits,
                pinned=pinned,
                stale=worker.stale,
            )
            for digest, tier, loaded, hits, pinned in held
            if digest in numbers
        ]
    return sorted(rows, key=lambda row: (-row.number, row.title))
