"""Last word of a worker and of a machine, as the bridge keeps them in Redis and sends them to its group."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest
from operator import itemgetter

import msgspec

from fleet.ids import worker_key
from fleet.telemetry.points import Point
from wire.telemetry import DeviceSample, Eviction, ResidentAdapter, ResidentModel, Telemetry

STALE_AFTER_S = 5.0
MAX_REFUSED = 50
# a worker unseen for so long leaves the live pages; its row and its roll-ups stay in the database
FORGET_AFTER_S = 3600.0


class WorkerState(msgspec.Struct, frozen=True, omit_defaults=True):
    """``received`` is the bridge's clock (seconds since the epoch). ``adapters`` is ``None`` in an update
    that leaves the list as it was; in Redis it is always there. ``evicted`` are the newest evictions, newest last;
    ``batch_rows`` and ``batch_adapters`` count the last minute's batches by ``histograms.LABELS``. ``refused``: digests
    that the machine refuses since their jobs end workers, and until when (seconds since the epoch)."""

    machine: str
    worker: str
    pool: str
    state: str
    device: DeviceSample
    received: float
    uptime_s: float
    point: Point
    waiting_jobs: int
    waiting_tokens: int
    local_queue_jobs: int
    cached_bytes: int | None
    models: list[ResidentModel]
    adapters: list[ResidentAdapter] | None = None
    evicted: list[Eviction] = []
    budget_bytes: int | None = None
    batch_rows: list[int] = []
    batch_adapters: list[int] = []
    refused: dict[str, float] = {}

    @property
    def key(self) -> str:
        """The worker's key in addresses and Redis."""
        return worker_key(self.machine, self.worker)


class MachineState(msgspec.Struct, frozen=True):
    """Last presence of a machine's sidecar: models its undrained workers serve or can load."""

    machine: str
    pool: str
    models: list[str]
    workers: int
    received: float


class Update(msgspec.Struct, frozen=True):
    """The coalesced message: everything that changed since the last one. ``at`` is the bridge's clock."""

    at: float
    workers: list[WorkerState]


def worker_state(
    telemetry: Telemetry,
    *,
    point: Point,
    received: float,
    with_adapters: bool = True,
    evicted: Sequence[Eviction] = (),
    batches: tuple[list[int], list[int]] = ([], []),
) -> WorkerState:
    """The state that ``telemetry`` speaks of."""
    sample = telemetry.sample
    return WorkerState(
        machine=telemetry.machine,
        worker=sample.worker,
        pool=telemetry.pool,
        state=sample.state.value,
        device=sample.device,
        received=received,
        uptime_s=sample.uptime_s,
        point=point,
        waiting_jobs=sample.waiting_jobs,
        waiting_tokens=sample.waiting_tokens,
        local_queue_jobs=telemetry.local_queue_jobs,
        cached_bytes=telemetry.cached_bytes,
        models=sample.models,
        adapters=sample.adapters if with_adapters else None,
        evicted=list(evicted),
        budget_bytes=sample.budget_bytes,
        batch_rows=batches[0],
        batch_adapters=batches[1],
        # bounded whatever a sidecar says: those that are refused longest
        refused=dict(nlargest(MAX_REFUSED, telemetry.refused.items(), key=itemgetter(1))),
    )
