"""What is remembered of jobs that are gone: bounded in number, bytes and time."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class TimedMemory(Generic[T]):
    """Values by job id, forgotten after ``keep_s`` or when more than ``max_items`` are kept, the oldest first."""

    keep_s: float
    max_items: int
    _items: OrderedDict[str, tuple[float, T]] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._items)

    def put(self, key: str, value: T, now: float) -> None:
        """Remember ``value``; a key put again is young again."""
        self._items.pop(key, None)
        self._items[key] = (now, value)
        self._forget(now)

    def get(self, key: str, now: float) -> T | None:
        """The value kept for ``key``, if it is not too old."""
        self._forget(now)
        item = self._items.get(key)
        return None if item is None else item[1]

    def since(self, moment: float) -> list[T]:
        """Values remembered at ``moment`` or later, oldest first."""
        return [value for put_at, value in self._items.values() if put_at >= moment]

    def _forget(self, now: float) -> None:
        while self._items:
            key, (put_at, _) = next(iter(self._items.items()))
            if now - put_at <= self.keep_s and len(self._items) <= self.max_items:
                return
            del self._items[key]


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply that was sent: ``data`` is ``None`` when it was too large to keep."""

    reply: str
    deadline: float
    data: bytes | None
