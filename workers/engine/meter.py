"""What happened since the last sample. Written by the stages, emptied once a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from wire.telemetry import Eviction

_REASONS_KEPT = 64
"""Evictions of one interval that are told with their reason; all are counted."""


@dataclass(slots=True)
class Counts:
    """Counts of one interval; ``busy_s`` is the time the device ran forward passes."""

    busy_s: float = 0.0
    requests: int = 0
    tokens: int = 0
    rows: int = 0
    generated: int = 0
    errors: int = 0
    loads: int = 0
    evictions: int = 0
    evicted: list[Eviction] = field(default_factory=list)
    batch_rows: list[int] = field(default_factory=list)
    batch_adapters: list[int] = field(default_factory=list)
    queue_ms: list[float] = field(default_factory=list)


class Meter:
    """Counts for one sample a second; ``clock`` is monotonic seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = Counts()
        self._busy_since: float | None = None
        self._taken = time.monotonic()

    def batch_started(self) -> None:
        with self._lock:
            self._busy_since = time.monotonic()

    def batch_ended(self, *, rows: int, tokens: int, adapters: int) -> None:
        with self._lock:
            self._count_busy(time.monotonic())
            self._busy_since = None
            self._counts.rows += rows
            self._counts.tokens += tokens
            self._counts.batch_rows.append(rows)
            self._counts.batch_adapters.append(adapters)

    def generated(self, tokens: int) -> None:
        """So many tokens of texts in the making are new."""
        with self._lock:
            self._counts.generated += tokens

    def job_done(self, *, queue_ms: float, failed: bool) -> None:
        with self._lock:
            self._counts.requests += 1
            self._counts.errors += failed
            self._counts.queue_ms.append(round(queue_ms, 3))

    def loaded(self) -> None:
        """An adapter or a model came to the device."""
        with self._lock:
            self._counts.loads += 1

    def evicted(self, evicted: Sequence[Eviction]) -> None:
        """These left a tier."""
        with self._lock:
            self._counts.evictions += len(evicted)
            self._counts.evicted = [*self._counts.evicted, *evicted][-_REASONS_KEPT:]

    def take(self) -> tuple[Counts, float]:
        """Counts since the last call and the interval's length in seconds; a running pass counts up to now."""
        with self._lock:
            now = time.monotonic()
            self._count_busy(now)
            counts, self._counts = replace(self._counts), Counts()
            interval, self._taken = now - self._taken, now
            return counts, interval

    def _count_busy(self, now: float) -> None:
        if self._busy_since is not None:
            self._counts.busy_s += now - self._busy_since
            self._busy_since = now
