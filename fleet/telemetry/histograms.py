"""Histograms of batches over the last minute: how many rows, and how many different adapters, a batch held."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

UPPER_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128)
LABELS = ("1", "2", "3–4", "5–8", "9–16", "17–32", "33–64", "65–128", "129+")
WINDOW_SAMPLES = 60


@dataclass(slots=True)
class BatchHistogram:
    """Counts per bucket over the last 60 samples, one a second."""

    _samples: deque[list[int]] = field(default_factory=lambda: deque(maxlen=WINDOW_SAMPLES))

    def add(self, sizes: Iterable[int]) -> None:
        """Take the batches of one sample."""
        counts = [0] * len(LABELS)
        for size in sizes:
            if size > 0:
                counts[bisect_left(UPPER_BOUNDS, size)] += 1
        self._samples.append(counts)

    def counts(self) -> list[int]:
        """Batches per bucket."""
        return [sum(column) for column in zip(*self._samples, strict=True)] if self._samples else []
