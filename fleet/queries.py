"""Base models, pools and roll-ups, as typed rows."""

from __future__ import annotations

import datetime as dt
import time
from collections import defaultdict
from dataclasses import dataclass

from django.utils import timezone

from fleet.ids import parse_worker_key
from fleet.models import BaseModel, UtilizationMinute
from fleet.rows import WorkerRow
from fleet.telemetry.reader import live_reader
from fleet.telemetry.states import STALE_AFTER_S
from wire.names import parse_address

MINUTE_S = 60


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A pool: what is configured for it and who serves it now. ``models_served`` is the word of its live machines."""

    name: str
    base_models: list[str]
    models_served: list[str]
    machines: int
    workers: int
    workers_ready: int


@dataclass(frozen=True, slots=True)
class MinuteColumns:
    """Roll-ups as columns, oldest first; ``at`` is the start of the minute in seconds since the epoch."""

    at: list[int]
    utilization: list[float | None]
    busy: list[float | None]
    memory_used_bytes: list[int | None]
    requests_per_s: list[float]
    tokens_per_s: list[float]
    errors: list[int]
    batch_rows: list[float | None]
    batch_adapters: list[float | None]
    queue_p50_ms: list[float | None]
    queue_p95_ms: list[float | None]


def list_pools(workers: list[WorkerRow]) -> list[PoolRow]:
    """Every pool that has a base model, a machine or a worker, by name."""
    now = time.time()
    configured: dict[str, list[str]] = defaultdict(list)
    for pool, model in BaseModel.objects.values_list("pool", "model_id"):
        configured[pool].append(model)
    machines = [m for m in live_reader().read().machines if now - m.received <= STALE_AFTER_S]
    names = {*configured, *(m.pool for m in machines), *(w.pool for w in workers)}
    return [
        PoolRow(
            name=name,
            base_models=configured.get(name, []),
            models_served=sorted(
                {model for m in machines if m.pool == name for model in m.models if not _is_version(model)}
            ),
            machines=sum(m.pool == name for m in machines),
            workers=sum(w.pool == name for w in workers),
            workers_ready=sum(w.pool == name and w.ready for w in workers),
        )
        for name in sorted(names)
    ]


def _is_version(model: str) -> bool:
    """Whether a served model is a version of some team, whose name is not everybody's to know."""
    address = parse_address(model)
    return address is not None and address.version is not None


def read_minutes(key: str, *, hours: int) -> MinuteColumns:
    """Roll-ups of one worker over the last ``hours``; a minute in which nothing was heard has no entry."""
    machine, worker = parse_worker_key(key) or ("", "")
    rows = UtilizationMinute.objects.filter(
        worker__machine=machine,
        worker__worker_id=worker,
        minute__gte=timezone.now() - dt.timedelta(hours=hours),
    ).order_by("minute")
    minutes = list(rows)
    return MinuteColumns(
        at=[int(row.minute.timestamp()) for row in minutes],
        utilization=[row.utilization for row in minutes],
        busy=[row.busy for row in minutes],
        memory_used_bytes=[row.memory_used_bytes for row in minutes],
        requests_per_s=[round(row.requests / MINUTE_S, 2) for row in minutes],
        tokens_per_s=[round(row.tokens / MINUTE_S, 1) for row in minutes],
        errors=[row.errors for row in minutes],
        batch_rows=[row.batch_rows for row in minutes],
        batch_adapters=[row.batch_adapters for row in minutes],
        queue_p50_ms=[row.queue_p50_ms for row in minutes],
        queue_p95_ms=[row.queue_p95_ms for row in minutes],
    )
