"""What the bridge holds in memory: the last telemetry of each worker and the points not yet written.
Bounded."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from fleet.ids import worker_key
from fleet.telemetry.histograms import BatchHistogram
from fleet.telemetry.points import Second, point_second
from fleet.telemetry.states import FORGET_AFTER_S, MachineState, WorkerState, worker_state
from wire.jobs import Presence
from wire.telemetry import Eviction, ResidentAdapter, Telemetry

MAX_WORKERS = 1000
MAX_PENDING_SECONDS = 300
KEPT_EVICTIONS = 50
HITS_EVERY_S = 3.0
FULL_EVERY_S = 15.0


@dataclass(slots=True)
class _Tracked:
    telemetry: Telemetry
    received: float
    seconds: OrderedDict[int, Second] = field(default_factory=OrderedDict)
    evicted: deque[Eviction] = field(default_factory=lambda: deque(maxlen=KEPT_EVICTIONS))
    rows: BatchHistogram = field(default_factory=BatchHistogram)
    mix: BatchHistogram = field(default_factory=BatchHistogram)
    changed: bool = True
    sent_adapters: list[ResidentAdapter] | None = None
    sent_adapters_at: float = 0.0


@dataclass(slots=True)
class Intake:
    """Coalesces whatever arrives; memory depends on the number of workers and not on the rate of messages.

    When Redis is away, up to 300 seconds of points wait for each worker; older ones are dropped first.
    """

    workers: dict[str, _Tracked] = field(default_factory=dict)
    machines: dict[str, MachineState] = field(default_factory=dict)
    refused: int = 0

    def add_telemetry(self, telemetry: Telemetry, *, received: float) -> None:
        """Take one sample; one worker more than the bound is counted and left out."""
        key = worker_key(telemetry.machine, telemetry.sample.worker)
        tracked = self.workers.get(key)
        if tracked is None:
            if len(self.workers) >= MAX_WORKERS:
                self.refused += 1
                return
            tracked = self.workers[key] = _Tracked(telemetry, received)
        tracked.telemetry, tracked.received, tracked.changed = telemetry, received, True
        tracked.evicted.extend(row for row in telemetry.sample.evicted[-KEPT_EVICTIONS:] if row not in tracked.evicted)
        tracked.rows.add(telemetry.sample.batch_rows)
        tracked.mix.add(telemetry.sample.batch_adapters)
        second = point_second(telemetry.sample.at, received)
        tracked.seconds.setdefault(second, Second(second)).add(telemetry.sample)
        while len(tracked.seconds) > MAX_PENDING_SECONDS:
            tracked.seconds.popitem(last=False)

    def add_presence(self, presence: Presence, *, received: float) -> None:
        """Take one sign of life of a machine."""
        if presence.machine in self.machines or len(self.machines) < MAX_WORKERS:
            self.machines[presence.machine] = MachineState(
                presence.machine, presence.pool, presence.models, presence.workers, received
            )

    def forget(self, now: float) -> None:
        """Drop workers and machines that were silent for an hour."""
        limit = now - FORGET_AFTER_S
        self.workers = {key: item for key, item in self.workers.items() if item.received > limit}
        self.machines = {name: item for name, item in self.machines.items() if item.received > limit}

    def current_states(self) -> list[WorkerState]:
        """Full state of every worker, with its newest point."""
        return [
            worker_state(
                item.telemetry,
                point=newest.point(),
                received=item.received,
                evicted=item.evicted,
                batches=_batches(item),
            )
            for item in self.workers.values()
            if (newest := _newest(item)) is not None
        ]

    def pending_points(self) -> dict[str, list[Second]]:
        """Seconds of each worker that are not known to be written."""
        return {key: list(item.seconds.values()) for key, item in self.workers.items() if item.seconds}

    def mark_written(self, written: dict[str, list[Second]], *, before: int) -> None:
        """Drop written seconds that are over; the running one may still grow, the newest is what pages
        show."""
        for key, seconds in written.items():
            item = self.workers.get(key)
            if item is None:
                continue
            for second in seconds:
                if second.at < before and second.at != next(reversed(item.seconds), None):
                    item.seconds.pop(second.at, None)

    def take_changes(self, now: float) -> list[WorkerState]:
        """States that changed since the last call; adapters only where residency or, every 3 s, hits
        changed."""
        changes = []
        for item in self.workers.values():
            newest = _newest(item)
            if not item.changed or newest is None:
                continue
            item.changed = False
            with_adapters = _adapters_due(item, now)
            if with_adapters:
                item.sent_adapters, item.sent_adapters_at = item.telemetry.sample.adapters, now
            changes.append(
                worker_state(
                    item.telemetry,
                    point=newest.point(),
                    received=item.received,
                    with_adapters=with_adapters,
                    evicted=item.evicted,
                    batches=_batches(item),
                )
            )
        return changes


def _newest(item: _Tracked) -> Second | None:
    return item.seconds[next(reversed(item.seconds))] if item.seconds else None


def _batches(item: _Tracked) -> tuple[list[int], list[int]]:
    return item.rows.counts(), item.mix.counts()


def _adapters_due(item: _Tracked, now: float) -> bool:
    adapters, sent, age = item.telemetry.sample.adapters, item.sent_adapters, now - item.sent_adapters_at
    if sent is None or age >= FULL_EVERY_S:
        return True
    if [(row.digest, row.pinned, row.tier) for row in adapters] != [(row.digest, row.pinned, row.tier) for row in sent]:
        return True
    return age >= HITS_EVERY_S and adapters != sent
