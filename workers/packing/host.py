"""The second tier: adapters that have no slot, kept ready in host memory within a byte budget."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from workers.packing.artifact import PreparedAdapter


@dataclass(slots=True)
class HostAdapter:
    """An adapter in host memory. ``model`` is the key of the loaded model that it was prepared for; times are seconds
    since the epoch."""

    model: str
    adapter: PreparedAdapter
    loaded: float
    last_used: float
    hits: int = 0


class HostTier:
    """Prepared adapters by (key of the loaded model, digest), least recently used dropped first. Safe for several
    threads.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._adapters: OrderedDict[tuple[str, str], HostAdapter] = OrderedDict()
        self.size_bytes = 0

    def get(self, model: str, digest: str) -> PreparedAdapter | None:
        """The adapter when it is kept here; it becomes the most recently used."""
        with self._lock:
            held = self._adapters.get((model, digest))
            if held is None:
                return None
            self._adapters.move_to_end((model, digest))
            held.hits += 1
            held.last_used = time.time()
            return held.adapter

    def newest(self, count: int) -> list[HostAdapter]:
        """At most ``count`` adapters, most recently used first."""
        with self._lock:
            return [self._adapters[key] for key in list(reversed(self._adapters))[:count]]

    def put(self, model: str, adapter: PreparedAdapter) -> None:
        """Keep ``adapter``, dropping others as the budget needs; one above the whole budget is not kept."""
        with self._lock:
            self._drop((model, adapter.digest))
            if adapter.size_bytes > self.limit_bytes:
                return
            now = time.time()
            self._adapters[(model, adapter.digest)] = HostAdapter(model, adapter, now, now)
            self.size_bytes += adapter.size_bytes
            while self.size_bytes > self.limit_bytes:
                self._drop(next(iter(self._adapters)))

    def discard(self, digest: str) -> None:
        """Forget the adapter in every model."""
        with self._lock:
            for key in [key for key in self._adapters if key[1] == digest]:
                self._drop(key)

    def clear(self) -> None:
        """Forget everything, to give memory back."""
        with self._lock:
            self._adapters.clear()
            self.size_bytes = 0

    def _drop(self, key: tuple[str, str]) -> None:
        held = self._adapters.pop(key, None)
        if held is not None:
            self.size_bytes -= held.adapter.size_bytes
