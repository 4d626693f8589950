"""Fair shares between tenants, and between the adapters of each tenant, for whoever chooses what runs next.

Start-time fair queueing (Goyal, Vin and Cheng, 1996): what each flow was given moves its own virtual time on, and the
flow furthest behind is next. It gives what deficit round robin gives (over any time two flows that wait get amounts
that differ by no more than one item each), without a quantum to choose, and an item of any size fits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

KEPT_FLOWS = 1024


@dataclass(slots=True)
class FairShare:
    """Virtual time of each flow, in tokens. A flow that was away starts with the present, neither rich nor in debt."""

    _clock: float = 0.0
    _ends: dict[str, float] = field(default_factory=dict)

    def start(self, flow: str) -> float:
        """Where the next item of ``flow`` starts: the flow with the smallest start is next."""
        return max(self._clock, self._ends.get(flow, 0.0))

    def charge(self, flow: str, tokens: float) -> None:
        """``flow`` was given ``tokens``."""
        start = self.start(flow)
        self._clock = start
        self._ends[flow] = start + tokens
        if len(self._ends) > KEPT_FLOWS:
            self._ends = {name: end for name, end in self._ends.items() if end > self._clock}


@dataclass(slots=True)
class TenantShares:
    """Shares of two levels: an adapter competes with its tenant's others alone, whatever their number."""

    _tenants: FairShare = field(default_factory=FairShare)
    _adapters: dict[str, FairShare] = field(default_factory=dict)

    def start(self, tenant: str, adapter: str | None) -> tuple[float, float]:
        """The smallest is next."""
        own = self._adapters.get(tenant)
        return self._tenants.start(tenant), 0.0 if own is None else own.start(adapter or "")

    def charge(self, tenant: str, adapter: str | None, tokens: float) -> None:
        """An adapter (``None``: the base model) of ``tenant`` was given ``tokens``."""
        self._tenants.charge(tenant, tokens)
        own = self._adapters.get(tenant)
        if own is None:
            if len(self._adapters) >= KEPT_FLOWS:
                self._adapters.clear()
            own = self._adapters[tenant] = FairShare()
        own.charge(adapter or "", tokens)

    def copy(self) -> TenantShares:
        """The same shares, to try something out on."""
        return TenantShares(_copy(self._tenants), {name: _copy(one) for name, one in self._adapters.items()})


def _copy(share: FairShare) -> FairShare:
    return FairShare(share._clock, dict(share._ends))
