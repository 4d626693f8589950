"""The queue that all devices of a machine share: first in first out per model, with bounded affinity.

A worker is given jobs whose adapter it already holds before others, but nobody waits longer than ``affinity_wait_s``
for that, and an idle worker takes whatever is first. Jobs that wait for an artifact or payload are parked: they keep
their place in time and delay nobody.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

AFFINITY_WAIT_S = 0.05
AFFINITY_WINDOW_JOBS = 64


@dataclass(slots=True, eq=False)
class Entry:
    """One waiting job. ``arrived`` and ``deadline`` are seconds of one clock; a suspect runs alone on its worker."""

    id: str
    model: str
    adapter: str | None
    tokens: int
    arrived: float
    deadline: float
    suspect: bool = False


@dataclass(frozen=True, slots=True)
class WorkerView:
    """What a worker can take now. ``elsewhere``: adapters resident at other workers that have room."""

    servable: frozenset[str]
    resident_models: frozenset[str] = frozenset()
    adapters: frozenset[str] = frozenset()
    elsewhere: frozenset[str] = frozenset()
    idle: bool = True


@dataclass(slots=True)
class LocalQueue:
    """Owner of every job that waits on this machine. One id is in the queue at most once."""

    affinity_wait_s: float = AFFINITY_WAIT_S
    _lines: dict[str, deque[Entry]] = field(default_factory=dict)
    _suspects: deque[Entry] = field(default_factory=deque)
    _parked: dict[str, list[Entry]] = field(default_factory=dict)
    _present: dict[str, Entry] = field(default_factory=dict)
    _parked_ids: dict[str, str] = field(default_factory=dict)
    _deadlines: list[tuple[float, int, Entry]] = field(default_factory=list)
    _counter: int = 0
    _ready_tokens: int = 0

    def __len__(self) -> int:
        return len(self._present)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._present

    @property
    def parked(self) -> int:
        """Jobs that wait for an artifact or payload."""
        return len(self._parked_ids)

    @property
    def ready_tokens(self) -> int:
        """Token estimates of the jobs that a worker could be given now."""
        return self._ready_tokens

    def put(self, entry: Entry) -> None:
        """Put ``entry`` in its model's line at its place by arrival: a job that comes back goes before younger ones."""
        self._admit(entry)
        self._enter(entry)

    def park(self, entry: Entry, key: str) -> None:
        """Keep ``entry`` aside until ``unpark(key)``."""
        self._admit(entry)
        self._parked.setdefault(key, []).append(entry)
        self._parked_ids[entry.id] = key

    def parked_under(self, key: str) -> list[str]:
        """Ids of the jobs parked under ``key``."""
        return [entry.id for entry in self._parked.get(key, ())]

    def unpark(self, key: str) -> int:
        """Let the jobs parked under ``key`` take their place by arrival; how many."""
        entries = self._take_parked(key)
        for entry in entries:
            self._enter(entry)
        return len(entries)

    def remove_parked(self, key: str) -> list[Entry]:
        """Take the jobs parked under ``key`` out of the queue."""
        entries = self._take_parked(key)
        for entry in entries:
            del self._present[entry.id]
        return entries

    def remove(self, job_id: str) -> Entry | None:
        """Take one job out, wherever it waits."""
        entry = self._present.pop(job_id, None)
        if entry is None:
            return None
        key = self._parked_ids.pop(job_id, None)
        if key is not None:
            self._parked[key].remove(entry)
            if not self._parked[key]:
                del self._parked[key]
            return entry
        self._line(entry).remove(entry)
        self._ready_tokens -= entry.tokens
        return entry

    def expire(self, now: float) -> list[Entry]:
        """Take out every job whose deadline has passed, the earliest first."""
        expired: list[Entry] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            entry = heapq.heappop(self._deadlines)[2]
            if self._present.get(entry.id) is entry:
                self.remove(entry.id)
                expired.append(entry)
        return expired

    def take(self, view: WorkerView, now: float) -> Entry | None:
        """The job this worker should run next, or ``None``. While suspects wait, a worker empties itself for them."""
        suspect = next((one for one in self._suspects if one.model in view.servable), None)
        chosen = self._choose(view, now) if suspect is None else suspect
        if suspect is not None and not view.idle:
            return None
        if chosen is not None:
            self.remove(chosen.id)
        return chosen

    def _choose(self, view: WorkerView, now: float) -> Entry | None:
        for line in self._ordered_lines(view, now):
            chosen = self._choose_in(line, view, now)
            if chosen is not None:
                return chosen
        return None

    def _ordered_lines(self, view: WorkerView, now: float) -> Iterator[deque[Entry]]:
        lines = [line for model, line in self._lines.items() if line and model in view.servable]

        def rank(line: deque[Entry]) -> tuple[bool, float]:
            head = line[0]
            resident = head.model in view.resident_models or now - head.arrived >= self.affinity_wait_s
            return (not resident, head.arrived)

        return iter(sorted(lines, key=rank))

    def _choose_in(self, line: deque[Entry], view: WorkerView, now: float) -> Entry | None:
        head = line[0]
        if now - head.arrived >= self.affinity_wait_s:
            return head
        window = list(islice(line, AFFINITY_WINDOW_JOBS))
        for entry in window:
            if entry.adapter is None or entry.adapter in view.adapters:
                return entry
        if view.idle:
            return head
        return next((one for one in window if one.adapter not in view.elsewhere), None)

    def _admit(self, entry: Entry) -> None:
        if entry.id in self._present:
            raise ValueError(f"job {entry.id} is in the queue already")
        self._present[entry.id] = entry
        self._counter += 1
        heapq.heappush(self._deadlines, (entry.deadline, self._counter, entry))

    def _enter(self, entry: Entry) -> None:
        self._ready_tokens += entry.tokens
        line = self._line(entry)
        if not line or line[-1].arrived <= entry.arrived:
            line.append(entry)
            return
        line.insert(next(at for at, other in enumerate(line) if other.arrived > entry.arrived), entry)

    def _line(self, entry: Entry) -> deque[Entry]:
        return self._suspects if entry.suspect else self._lines.setdefault(entry.model, deque())

    def _take_parked(self, key: str) -> list[Entry]:
        entries = self._parked.pop(key, [])
        for entry in entries:
            del self._parked_ids[entry.id]
        return entries
