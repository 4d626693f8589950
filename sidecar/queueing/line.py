"""The waiting jobs of one model: by tenant and adapter, each of these first in first out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fabric.fairness import TenantShares

Flow = tuple[str, str | None]


@dataclass(slots=True, eq=False)
class Entry:
    """One waiting job. ``arrived`` and ``deadline`` are seconds of one clock; a suspect runs alone on its worker."""

    id: str
    model: str
    adapter: str | None
    tokens: int
    arrived: float
    deadline: float
    suspect: bool = False
    tenant: str = ""


@dataclass(slots=True)
class Line:
    """Jobs of one model that could run now."""

    _flows: dict[Flow, deque[Entry]] = field(default_factory=dict)
    _tenants: dict[str, set[str | None]] = field(default_factory=dict)
    _shares: TenantShares = field(default_factory=TenantShares)

    def __bool__(self) -> bool:
        return bool(self._flows)

    @property
    def oldest(self) -> float:
        """When the job that waits longest came."""
        return min(flow[0].arrived for flow in self._flows.values())

    def put(self, entry: Entry) -> None:
        """Put ``entry`` at its place by arrival among its like: a job that comes back goes before younger ones."""
        key = (entry.tenant, entry.adapter)
        if key not in self._flows:
            self._shares.enter(*key, self._tenants)
            self._flows[key] = deque()
            self._tenants.setdefault(entry.tenant, set()).add(entry.adapter)
        insert_by_arrival(self._flows[key], entry)

    def remove(self, entry: Entry) -> None:
        """Take ``entry`` out."""
        key = (entry.tenant, entry.adapter)
        flow = self._flows[key]
        flow.remove(entry)
        if not flow:
            del self._flows[key]
            self._tenants[entry.tenant].discard(entry.adapter)
            if not self._tenants[entry.tenant]:
                del self._tenants[entry.tenant]

    def charge(self, entry: Entry) -> None:
        """``entry`` was given to a worker: its tenant and adapter have had so much."""
        self._shares.charge(entry.tenant, entry.adapter, entry.tokens)

    def next(self, rank: Callable[[Entry], int | None]) -> Entry | None:
        """The first of all flows: least ``rank``, then the fair share furthest behind, then arrival; ``None`` excludes.

        Only the first job of each flow is looked at, since the others have its adapter and came later.
        """
        heads: Iterable[Entry] = (flow[0] for flow in self._flows.values())
        ranked = [(place, head) for head in heads if (place := rank(head)) is not None]
        if len(ranked) <= 1:
            return ranked[0][1] if ranked else None
        return min(ranked, key=lambda one: (one[0], self._shares.start(one[1].tenant, one[1].adapter), one[1].arrived))[
            1
        ]


def insert_by_arrival(line: deque[Entry], entry: Entry) -> None:
    """Put ``entry`` before all that arrived later."""
    if not line or line[-1].arrived <= entry.arrived:
        line.append(entry)
        return
    line.insert(next(at for at, other in enumerate(line) if other.arrived > entry.arrived), entry)
