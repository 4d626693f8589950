"""What is remembered of jobs that are gone: bounded in number, bytes and time."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class TimedMemory(Generic[T]):
    """Values by job id, the oldest forgotten first: after ``keep_s``, above ``max_items``, and when their sizes are
    together above ``max_bytes`` (no bound by default)."""

    keep_s: float
    max_items: int
    max_bytes: float = math.inf
    bytes: int = 0
    _items: OrderedDict[str, tuple[float, int, T]] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._items)

    def put(self, key: str, value: T, now: float, size_bytes: int = 0) -> None:
        """Remember ``value``; a key put again is young again."""
        self._drop(key)
        self._items[key] = (now, size_bytes, value)
        self.bytes += size_bytes
        self._forget(now)

    def get(self, key: str, now: float) -> T | None:
        """The value kept for ``key``, if it is not too old."""
        self._forget(now)
        item = self._items.get(key)
        return None if item is None else item[2]

    def since(self, moment: float) -> list[T]:
        """Values remembered at ``moment`` or later, oldest first."""
        return [value for put_at, _, value in self._items.values() if put_at >= moment]

    def _forget(self, now: float) -> None:
        while self._items:
            key, (put_at, _, _) = next(iter(self._items.items()))
            within = len(self._items) <= self.max_items and self.bytes <= self.max_bytes
            if now - put_at <= self.keep_s and within:
                return
            self._drop(key)

    def _drop(self, key: str) -> None:
        item = self._items.pop(key, None)
        if item is not None:
            self.bytes -= item[1]


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply that was sent."""

    reply: str
    deadline: float
    data: bytes
