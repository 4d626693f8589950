"""Figures of one target: sums over usage, and what people read off them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from loras.metrics.histogram import BUCKETS, added, percentile_ms
from wire.usage import TargetUsage


@dataclass(frozen=True, slots=True)
class Figures:
    """Requests that ended: ``failed`` by error code is the serving side's, ``refused`` the requests' own fault."""

    requests: int = 0
    refused: int = 0
    tokens: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    latency: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    latency_sum_ms: float = 0.0

    @property
    def failures(self) -> int:
        return sum(self.failed.values())

    @property
    def judged(self) -> int:
        """Requests that say something of the version: all but those refused for their own fault."""
        return max(0, self.requests - self.refused)

    @property
    def error_rate(self) -> float | None:
        return self.failures / self.judged if self.judged else None

    @property
    def p50_ms(self) -> float | None:
        return percentile_ms(self.latency, 0.5)

    @property
    def p95_ms(self) -> float | None:
        return percentile_ms(self.latency, 0.95)

    @property
    def mean_ms(self) -> float | None:
        answered = sum(self.latency)
        return round(self.latency_sum_ms / answered, 2) if answered else None


def summed(parts: Iterable[Figures]) -> Figures:
    """All of ``parts`` together."""
    found = list(parts)
    failed: dict[str, int] = {}
    for part in found:
        for code, count in part.failed.items():
            failed[code] = failed.get(code, 0) + count
    return Figures(
        requests=sum(part.requests for part in found),
        refused=sum(part.refused for part in found),
        tokens=sum(part.tokens for part in found),
        failed=failed,
        latency=added(part.latency for part in found),
        latency_sum_ms=sum(part.latency_sum_ms for part in found),
    )


def figures_of(usage: TargetUsage) -> Figures:
    """The figures in one second's word of a gateway; negative counts count for nothing."""
    return Figures(
        requests=max(0, usage.requests),
        refused=max(0, usage.refused),
        tokens=max(0, usage.tokens),
        failed={code[:60]: max(0, count) for code, count in list(usage.failed.items())[:50]},
        latency=added([usage.latency]),
        latency_sum_ms=max(0.0, usage.latency_sum_ms),
    )
