"""The queue that all devices of a machine share: fair between tenants and adapters, with bounded affinity.

A worker is given jobs whose adapter it already holds before others, but nobody waits longer than ``affinity_wait_s``
for that, and an idle worker takes whatever no other idle one holds. A model that another worker of the machine holds is
not loaded a second time before its jobs have waited ``model_wait_s``, and then with a few jobs first. Jobs that wait
for an artifact or payload are parked: they keep their place in time and delay nobody.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from sidecar.queueing.line import Entry, Line, insert_by_arrival

AFFINITY_WAIT_S = 0.05
MODEL_WAIT_S = 0.5
SPARE_DEADLINES = 1024


@dataclass(frozen=True, slots=True)
class WorkerView:
    """What a worker can take now.

    ``elsewhere``: adapters resident at other workers that have room (for an idle worker: at other idle ones);
    ``models_elsewhere``: models that other workers hold or load; ``rationed``: models that the worker still loads and
    has enough jobs of.
    """

    servable: frozenset[str]
    resident_models: frozenset[str] = frozenset()
    adapters: frozenset[str] = frozenset()
    elsewhere: frozenset[str] = frozenset()
    idle: bool = True
    models_elsewhere: frozenset[str] = frozenset()
    rationed: frozenset[str] = frozenset()


@dataclass(slots=True)
class LocalQueue:
    """Owner of every job that waits on this machine. One id is in the queue at most once."""

    affinity_wait_s: float = AFFINITY_WAIT_S
    model_wait_s: float = MODEL_WAIT_S
    _lines: dict[str, Line] = field(default_factory=dict)
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
        self._ready_tokens -= entry.tokens
        if entry.suspect:
            self._suspects.remove(entry)
        else:
            self._lines[entry.model].remove(entry)
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
        chosen = next((one for one in self._suspects if one.model in view.servable), None)
        if chosen is not None and not view.idle:
            return None
        chosen = chosen or self._choose(view, now)
        if chosen is None:
            return None
        self.remove(chosen.id)
        line = self._lines.get(chosen.model)
        if line is not None:
            # Without anybody who waits there are no shares to keep.
            if line:
                line.charge(chosen)
            else:
                del self._lines[chosen.model]
        return chosen

    def _choose(self, view: WorkerView, now: float) -> Entry | None:
        for line in self._ordered_lines(view, now):
            chosen = line.next(lambda entry: self._rank(entry, view, now))
            if chosen is not None:
                return chosen
        return None

    def _ordered_lines(self, view: WorkerView, now: float) -> Iterator[Line]:
        found: list[tuple[bool, float, Line]] = []
        for model, line in self._lines.items():
            if not line or model not in view.servable or model in view.rationed:
                continue
            oldest, resident = line.oldest, model in view.resident_models
            if not resident and model in view.models_elsewhere and now - oldest < self.model_wait_s:
                continue
            found.append((not resident and now - oldest < self.affinity_wait_s, oldest, line))
        found.sort(key=lambda one: one[:2])
        return (line for _, _, line in found)

    def _rank(self, entry: Entry, view: WorkerView, now: float) -> int | None:
        """0: whatever the worker holds, and what waited long enough; 1: what it would load; ``None``: not for it."""
        adapter = entry.adapter
        if adapter is None or adapter in view.adapters or now - entry.arrived >= self.affinity_wait_s:
            return 0
        return None if adapter in view.elsewhere else 1

    def _admit(self, entry: Entry) -> None:
        if entry.id in self._present:
            raise ValueError(f"job {entry.id} is in the queue already")
        self._present[entry.id] = entry
        self._counter += 1
        heapq.heappush(self._deadlines, (entry.deadline, self._counter, entry))
        if len(self._deadlines) > 2 * len(self._present) + SPARE_DEADLINES:
            # Jobs that left long before their deadline would pile up until it.
            self._deadlines = [one for one in self._deadlines if self._present.get(one[2].id) is one[2]]
            heapq.heapify(self._deadlines)

    def _enter(self, entry: Entry) -> None:
        self._ready_tokens += entry.tokens
        if entry.suspect:
            insert_by_arrival(self._suspects, entry)
        else:
            self._lines.setdefault(entry.model, Line()).put(entry)

    def _take_parked(self, key: str) -> list[Entry]:
        entries = self._parked.pop(key, [])
        for entry in entries:
            del self._parked_ids[entry.id]
        return entries
