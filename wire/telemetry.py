"""One-second samples of workers and devices. Unknown is ``None``, never 0."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class WorkerState(StrEnum):
    """State a worker reports of itself."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    DRAINED = "drained"


class ResidentModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model held in memory: a base model, or a version with weights of its own (``version``). ``tier`` is
    ``device`` or ``host``; ``size_bytes`` is measured. Times are seconds since the epoch."""

    id: str
    digest: str
    size_bytes: int
    pinned: bool
    slots: int
    slots_used: int
    tier: str = "device"
    version: str | None = None
    hits: int = 0
    loaded: float | None = None
    last_used: float | None = None
    dtype: str | None = None


NO_SLOT = -1


class ResidentAdapter(msgspec.Struct, frozen=True, omit_defaults=True):
    """An adapter version held in a slot (``tier`` ``device``), or ready in host memory (``host``, with ``NO_SLOT``).
    Times are seconds since the epoch."""

    digest: str
    model: str
    size_bytes: int
    slot: int
    pinned: bool
    hits: int
    loaded: float
    last_used: float
    tier: str = "device"
    version: str | None = None


class Eviction(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that left a tier. ``kind`` is ``model`` or ``adapter``; ``reason`` is a sentence for people."""

    kind: str
    digest: str
    reason: str
    at: float
    tier: str = "device"
    name: str | None = None


class DeviceSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """The device itself. ``kind`` is ``cpu``, ``cuda`` or ``simulated``; ``note`` says why a field is unknown."""

    id: str
    kind: str
    name: str
    utilization: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    temperature_c: float | None = None
    note: str | None = None


class WorkerSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one worker did in the last second.

    ``busy`` is the share of the second in which the device ran a batch (0 to 1). ``batch_rows`` and
    ``batch_adapters`` list every batch of the second; ``queue_ms`` every job's wait. ``process_bytes`` is the
    worker's resident set, ``reserved_bytes`` what its engine has reserved on the device, ``budget_bytes`` what it may.
    ``generating`` counts texts in the making, ``generated_tokens`` those of the second, ``cache_bytes`` the memory of
    their keys and values. ``evicted`` are the evictions of the second.
    """

    worker: str
    state: WorkerState
    at: float
    device: DeviceSample
    uptime_s: float
    busy: float
    requests: int
    tokens: int
    rows: int
    errors: int
    waiting_jobs: int
    waiting_tokens: int
    batch_rows: list[int]
    batch_adapters: list[int]
    queue_ms: list[float]
    loads: int
    evictions: int
    process_bytes: int | None
    reserved_bytes: int | None
    models: list[ResidentModel]
    adapters: list[ResidentAdapter]
    evicted: list[Eviction] = []
    budget_bytes: int | None = None
    host_bytes: int | None = None
    host_budget_bytes: int | None = None
    generating: int | None = None
    generated_tokens: int | None = None
    cache_bytes: int | None = None


class Telemetry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sample as the sidecar publishes it. ``refused``: versions whose jobs end workers, by digest, and until when
    (seconds since the epoch) the machine refuses them."""

    machine: str
    pool: str
    sample: WorkerSample
    local_queue_jobs: int
    cached_bytes: int | None = None
    refused: dict[str, float] = {}
