"""Which adapter holds which slot: the least used of late goes first, never one in use or pinned."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from workers.packing.heads import TaskHead
from workers.residency.uses import Uses


@dataclass(slots=True)
class Resident:
    """An adapter in a slot, with the task head it brings. Times are seconds since the epoch."""

    digest: str
    slot: int
    size_bytes: int
    loaded: float
    last_used: float
    hits: int = 0
    pinned: bool = False
    head: TaskHead | None = None


class SlotTable:
    """Pure bookkeeping of ``slots`` slots; the clock is passed in."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._residents: dict[str, Resident] = {}
        self._free = list(range(slots - 1, -1, -1))
        self._uses = Uses()

    def __contains__(self, digest: str) -> bool:
        return digest in self._residents

    def __len__(self) -> int:
        return len(self._residents)

    def residents(self) -> list[Resident]:
        """Residents, least used of late first. A batch counts once, however many rows of it were the adapter's: what
        a slot saves is one load for each batch."""
        return sorted(self._residents.values(), key=lambda one: (self._uses.rank(one.digest), one.last_used, one.slot))

    def digests(self) -> list[str]:
        """Digests of the residents. Safe to call beside the thread that owns the table."""
        return list(self._residents)

    def get(self, digest: str) -> Resident | None:
        """The resident with ``digest``, if there is one."""
        return self._residents.get(digest)

    def touch(self, digest: str, *, now: float, hits: int = 1) -> None:
        """Record that a batch used ``digest``."""
        resident = self._residents[digest]
        resident.last_used = max(resident.last_used, now)
        resident.hits += hits
        if hits:
            self._uses.add(digest, now=now)

    def victim(self, in_use: Collection[str], *, among: Collection[str] | None = None) -> str | None:
        """The adapter to evict next, or ``None`` when all are in use or pinned. ``among`` narrows the
        choice.
        """
        for resident in self.residents():
            if resident.pinned or resident.digest in in_use:
                continue
            if among is None or resident.digest in among:
                return resident.digest
        return None

    def room(self, in_use: Collection[str]) -> int:
        """How many further adapters could be made resident while those ``in_use`` and pinned ones stay."""
        kept = sum(1 for item in self._residents.values() if item.pinned or item.digest in in_use)
        return self.slots - kept

    @property
    def has_free(self) -> bool:
        """Whether a slot is empty."""
        return bool(self._free)

    def occupy(self, digest: str, *, size_bytes: int, now: float, head: TaskHead | None = None) -> Resident:
        """Give ``digest`` a free slot. The caller evicts first when there is none."""
        if digest in self._residents:
            raise ValueError(f"adapter {digest} holds a slot already")
        resident = Resident(digest, self._free.pop(), size_bytes, loaded=now, last_used=now, head=head)
        self._residents[digest] = resident
        self._uses.add(digest, now=now)
        return resident

    def release(self, digest: str) -> None:
        """Empty the slot of ``digest``."""
        self._free.append(self._residents.pop(digest).slot)
