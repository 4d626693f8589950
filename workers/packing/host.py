"""The second tier: adapters that have no slot, kept ready in host memory within a byte budget."""

from __future__ import annotations

import threading
from collections import OrderedDict

from workers.packing.artifact import PreparedAdapter


class HostTier:
    """Prepared adapters by (key of the loaded model, digest), least recently used dropped first. Safe for several
    threads.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._adapters: OrderedDict[tuple[str, str], PreparedAdapter] = OrderedDict()
        self.size_bytes = 0

    def get(self, model: str, digest: str) -> PreparedAdapter | None:
        """The adapter when it is kept here; it becomes the most recently used."""
        with self._lock:
            adapter = self._adapters.get((model, digest))
            if adapter is not None:
                self._adapters.move_to_end((model, digest))
            return adapter

    def put(self, model: str, adapter: PreparedAdapter) -> None:
        """Keep ``adapter``, dropping others as the budget needs; one above the whole budget is not kept."""
        with self._lock:
            self._drop((model, adapter.digest))
            if adapter.size_bytes > self.limit_bytes:
                return
            self._adapters[(model, adapter.digest)] = adapter
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
        adapter = self._adapters.pop(key, None)
        if adapter is not None:
            self.size_bytes -= adapter.size_bytes
