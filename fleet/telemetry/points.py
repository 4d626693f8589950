"""One point of history: what a worker did in one second, made of the samples that fell into it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from wire.telemetry import WorkerSample

MAX_CLOCK_SKEW_S = 3.0
# a worker that answers thousands of tiny jobs in a second still costs a bounded amount of memory here
MAX_VALUES_PER_SECOND = 4096


class Point(msgspec.Struct, frozen=True, array_like=True):
    """Figures of one worker in one second; ``None`` is unknown, never 0.

    ``at`` is a whole second since the epoch, ``samples`` how many samples were merged. ``requests``,
    ``tokens``, ``rows``, ``errors``, ``loads`` and ``evictions`` are totals over those samples; everything
    else is a mean or, for ``queue_p50_ms`` and ``queue_p95_ms``, a nearest-rank percentile. Shares are 0 to
    1.
    """

    at: int
    samples: int
    utilization: float | None
    busy: float | None
    memory_used_bytes: int | None
    process_bytes: int | None
    reserved_bytes: int | None
    power_watts: float | None
    temperature_c: float | None
    requests: int
    tokens: int
    rows: int
    errors: int
    loads: int
    evictions: int
    batches: int
    batch_rows: float | None
    batch_adapters: float | None
    queue_p50_ms: float | None
    queue_p95_ms: float | None
    waiting_jobs: int

    @property
    def requests_per_s(self) -> float:
        """Requests a second: each sample covers one second."""
        return self.requests / self.samples

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second: each sample covers one second."""
        return self.tokens / self.samples


def known(value: float | None) -> float | None:
    """``value`` when it is a finite number of 0 or more, else ``None``."""
    return value if value is not None and math.isfinite(value) and value >= 0 else None


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of the known values, ``None`` when none is known."""
    numbers = [number for value in values if (number := known(value)) is not None]
    return math.fsum(numbers) / len(numbers) if numbers else None


def percentile(values: Sequence[float], share: float) -> float | None:
    """Nearest-rank percentile (``share`` 0 to 1), ``None`` of no values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def point_second(at: float, received: float) -> int:
    """The second a sample belongs to: the worker's clock, or ours when the two are more than 3 s apart."""
    trusted = math.isfinite(at) and abs(at - received) <= MAX_CLOCK_SKEW_S
    return int(at if trusted else received)


@dataclass(slots=True)
class Second:
    """Samples of one worker in one second, until the point is final."""

    at: int
    samples: dict[float, WorkerSample] = field(default_factory=dict)

    def add(self, sample: WorkerSample) -> None:
        """Count ``sample``; the same sample twice counts once."""
        if len(self.samples) < MAX_VALUES_PER_SECOND:
            self.samples[sample.at] = sample

    def point(self) -> Point:
        """The merged point."""
        samples = list(self.samples.values())
        waits = _values(sample.queue_ms for sample in samples)
        rows = _values(sample.batch_rows for sample in samples)
        memory = mean(sample.device.memory_used_bytes for sample in samples)
        return Point(
            at=self.at,
            samples=max(1, len(samples)),
            utilization=mean(sample.device.utilization for sample in samples),
            busy=mean(sample.busy for sample in samples),
            memory_used_bytes=None if memory is None else round(memory),
            process_bytes=_last(sample.process_bytes for sample in samples),
            reserved_bytes=_last(sample.reserved_bytes for sample in samples),
            power_watts=mean(sample.device.power_watts for sample in samples),
            temperature_c=mean(sample.device.temperature_c for sample in samples),
            requests=sum(max(0, sample.requests) for sample in samples),
            tokens=sum(max(0, sample.tokens) for sample in samples),
            rows=sum(max(0, sample.rows) for sample in samples),
            errors=sum(max(0, sample.errors) for sample in samples),
            loads=sum(max(0, sample.loads) for sample in samples),
            evictions=sum(max(0, sample.evictions) for sample in samples),
            batches=len(rows),
            batch_rows=mean(rows),
            batch_adapters=mean(_values(sample.batch_adapters for sample in samples)),
            queue_p50_ms=percentile(waits, 0.5),
            queue_p95_ms=percentile(waits, 0.95),
            waiting_jobs=samples[-1].waiting_jobs if samples else 0,
        )


def _values(lists: Iterable[Sequence[float]]) -> list[float]:
    flat = [number for values in lists for value in values if (number := known(value)) is not None]
    return flat[:MAX_VALUES_PER_SECOND]


def _last(values: Iterable[int | None]) -> int | None:
    found = [value for value in values if known(value) is not None]
    return found[-1] if found else None
