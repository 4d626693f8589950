"""Messages of the socket ``/ws/fleet/``: JSON texts, each with a ``type``. A contract: add fields, never change one.

Sign in by session cookie, or with ``Authorization: Bearer <API key>`` of scope ``read``. Otherwise the socket closes
with code 4401. First comes one ``snapshot``, then at most five ``delta`` a second (one, as a rule) and a ``heartbeat``
after 2 s without anything else. A slow client gets the newest state of each worker and not what it missed in between.

Clocks: ``at`` is the server's time when the message was made and ``last_seen`` its time when the worker was last heard
of, both in seconds since the epoch. A worker is stale when ``at - last_seen`` plus the message's own age passes 5 s.
Every figure may be null: unknown is never 0.
"""

from __future__ import annotations

import msgspec

from wire.telemetry import DeviceSample, ResidentModel


class Adapter(msgspec.Struct, frozen=True):
    """A resident adapter. ``version`` is ``team/adapter@n`` for versions of the viewer's own teams and null
    for those of other teams, which are known by digest only. Times are seconds since the epoch by the
    worker's clock."""

    digest: str
    version: str | None
    model: str
    tier: str
    slot: int
    size_bytes: int
    hits: int
    pinned: bool
    loaded: float
    last_used: float


class Eviction(msgspec.Struct, frozen=True):
    """Something that left a tier. ``name`` is null for another team's; ``at`` is seconds since the epoch by the
    worker's clock."""

    kind: str
    digest: str
    name: str | None
    reason: str
    tier: str
    at: float


class Refusal(msgspec.Struct, frozen=True):
    """A version whose jobs the worker's machine refuses ``until`` then (seconds since the epoch), since they ended
    workers. ``version`` is null for another team's."""

    digest: str
    version: str | None
    until: float


class Figures(msgspec.Struct, frozen=True):
    """The worker's last second. Shares are 0 to 1; ``queue_*`` are percentiles over the jobs of the second."""

    at: int
    utilization: float | None
    busy: float | None
    memory_used_bytes: int | None
    process_bytes: int | None
    reserved_bytes: int | None
    power_watts: float | None
    temperature_c: float | None
    requests_per_s: float
    tokens_per_s: float
    errors: int
    batch_rows: float | None
    batch_adapters: float | None
    queue_p50_ms: float | None
    queue_p95_ms: float | None
    waiting_jobs: int


class Worker(msgspec.Struct, frozen=True):
    """One worker. ``adapters`` is null in a delta that leaves the list as it was. A model that is a version of another
    team is known by its digest only. ``evicted``: the newest evictions, newest first. ``batch_rows``
    and ``batch_adapters`` count the last minute's batches by size: 1, 2, 3 to 4, 5 to 8, … 129 and more."""

    id: str
    machine: str
    worker: str
    pool: str
    state: str
    device: DeviceSample
    last_seen: float
    uptime_s: float
    waiting_tokens: int
    local_queue_jobs: int
    cached_bytes: int | None
    figures: Figures
    models: list[ResidentModel]
    adapters: list[Adapter] | None
    evicted: list[Eviction] = []
    budget_bytes: int | None = None
    batch_rows: list[int] = []
    batch_adapters: list[int] = []
    refused: list[Refusal] = []


class History(msgspec.Struct, frozen=True):
    """Up to 15 minutes of one-second points as columns of equal length, oldest first."""

    at: list[int]
    utilization: list[float | None]
    busy: list[float | None]
    memory_used_bytes: list[int | None]
    requests_per_s: list[float]
    tokens_per_s: list[float]
    batch_rows: list[float | None]
    batch_adapters: list[float | None]
    queue_p50_ms: list[float | None]
    queue_p95_ms: list[float | None]
    process_bytes: list[int | None]
    reserved_bytes: list[int | None]


class Snapshot(msgspec.Struct, frozen=True, tag_field="type", tag="snapshot"):
    """Everything, once, right after the connection. ``history`` is keyed by worker id."""

    at: float
    workers: list[Worker]
    history: dict[str, History]


class Delta(msgspec.Struct, frozen=True, tag_field="type", tag="delta"):
    """Workers that changed since the last message."""

    at: float
    workers: list[Worker]


class Heartbeat(msgspec.Struct, frozen=True, tag_field="type", tag="heartbeat"):
    """Nothing changed, and the connection lives."""

    at: float


Message = Snapshot | Delta | Heartbeat
"""What a client may receive."""
