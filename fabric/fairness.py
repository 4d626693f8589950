"""Fair shares between tenants, and between the adapters of each tenant, for whoever chooses what runs next.

Start-time fair queueing (Goyal, Vin and Cheng, 1996): what each flow was given moves its own virtual time on, and the
flow furthest behind is next. It gives what deficit round robin gives (over any time two flows that wait get amounts
that differ by no more than one item each), without a quantum to choose, and an item of any size fits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

KEPT_FLOWS = 1024


@dataclass(slots=True)
class FairShare:
    """Virtual time of each flow, in tokens; flows that wait are looked at alone.

    A flow that begins to wait starts with the one furthest behind of those that do, or, alone, where the last was
    served: neither rich for its absence nor in debt for what it had while nobody else wanted any.
    """

    _clock: float = 0.0
    _ends: dict[str, float] = field(default_factory=dict)

    def start(self, flow: str) -> float:
        """Where the next item of a waiting flow starts: the one with the smallest start is next."""
        return self._ends.get(flow, self._clock)

    def enter(self, flow: str, waiting: Iterable[str]) -> None:
        """``flow`` begins to wait beside ``waiting``."""
        others = set(waiting)
        floor = min((self.start(other) for other in others), default=self._clock)
        if len(self._ends) >= KEPT_FLOWS + len(others):
            self._ends = {name: end for name, end in self._ends.items() if name in others}
        self._ends[flow] = max(self._ends.get(flow, floor), floor)

    def charge(self, flow: str, tokens: float) -> None:
        """``flow`` was given ``tokens``."""
        start = self.start(flow)
        self._clock = max(self._clock, start)
        self._ends[flow] = start + tokens

    def copy(self) -> FairShare:
        """The same shares, to try something out on."""
        return FairShare(self._clock, dict(self._ends))


@dataclass(slots=True)
class TenantShares:
    """Shares of two levels: an adapter competes with its tenant's others alone, whatever their number."""

    _tenants: FairShare = field(default_factory=FairShare)
    _adapters: dict[str, FairShare] = field(default_factory=dict)
    _waiting: Mapping[str, Collection[str | None]] = field(default_factory=dict)

    def start(self, tenant: str, adapter: str | None) -> tuple[float, float]:
        """The smallest is next."""
        return self._tenants.start(tenant), self._of(tenant).start(adapter or "")

    def enter(self, tenant: str, adapter: str | None, waiting: Mapping[str, Collection[str | None]]) -> None:
        """A flow begins to wait beside the adapters of tenants in ``waiting``."""
        if tenant not in waiting:
            self._tenants.enter(tenant, waiting)
        self._of(tenant).enter(adapter or "", [name or "" for name in waiting.get(tenant, ())])

    def wait(self, waiting: Mapping[str, Collection[str | None]]) -> None:
        """Exactly these wait now: those that did not before begin to."""
        still = {
            tenant: {name for name in self._waiting[tenant] if name in adapters}
            for tenant, adapters in waiting.items()
            if tenant in self._waiting
        }
        for tenant, adapters in waiting.items():
            for name in adapters:
                if name not in still.get(tenant, ()):
                    self.enter(tenant, name, still)
                    still.setdefault(tenant, set()).add(name)
        self._waiting = still

    def charge(self, tenant: str, adapter: str | None, tokens: float) -> None:
        """An adapter (``None``: the base model) of ``tenant`` was given ``tokens``."""
        self._tenants.charge(tenant, tokens)
        self._of(tenant).charge(adapter or "", tokens)

    def copy(self) -> TenantShares:
        """The same shares, to try something out on."""
        return TenantShares(
            self._tenants.copy(), {name: one.copy() for name, one in self._adapters.items()}, self._waiting
        )

    def _of(self, tenant: str) -> FairShare:
        own = self._adapters.get(tenant)
        if own is None:
            if len(self._adapters) >= KEPT_FLOWS:
                self._adapters.clear()
            own = self._adapters[tenant] = FairShare()
        return own
