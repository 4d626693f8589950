"""Latency histograms over ``wire.usage.LATENCY_BOUNDS_MS``: sums and percentiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wire.usage import LATENCY_BOUNDS_MS

BUCKETS = len(LATENCY_BOUNDS_MS) + 1


def added(histograms: Iterable[Sequence[int]]) -> list[int]:
    """Bucket-wise sum; what is too short or too long for the bounds counts for nothing."""
    total = [0] * BUCKETS
    for counts in histograms:
        if len(counts) == BUCKETS:
            total = [a + max(0, b) for a, b in zip(total, counts, strict=True)]
    return total


def percentile_ms(counts: Sequence[int], share: float) -> float | None:
    """The percentile (``share`` 0 to 1), linear within its bucket; ``None`` of no answers.

    Above the last bound nothing finer is known than that bound.
    """
    answered = sum(counts)
    if not answered:
        return None
    wanted, seen = share * answered, 0
    for index, count in enumerate(counts):
        if count and seen + count >= wanted:
            if index == len(LATENCY_BOUNDS_MS):
                return LATENCY_BOUNDS_MS[-1]
            low = LATENCY_BOUNDS_MS[index - 1] if index else 0.0
            return round(low + (LATENCY_BOUNDS_MS[index] - low) * (wanted - seen) / count, 2)
        seen += count
    return LATENCY_BOUNDS_MS[-1]


def slower_than(counts: Sequence[int], limit_ms: float) -> int:
    """Answers that took longer than the first bound at or above ``limit_ms``."""
    return sum(count for count, low in zip(counts[1:], LATENCY_BOUNDS_MS, strict=False) if low >= limit_ms)
