"""The bridge's side of the database: worker rows and one-minute roll-ups. Every write can be repeated."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from django.db import transaction

from fleet.models import UtilizationMinute, Worker
from fleet.telemetry.rollups import MinuteRollup
from fleet.telemetry.states import WorkerState
from wire.telemetry import DeviceSample

_FIGURES = [
    "utilization", "busy", "memory_used_bytes", "requests", "tokens", "errors",
    "batch_rows", "batch_adapters", "queue_p50_ms", "queue_p95_ms",
]  # fmt: skip


def identity(device: DeviceSample) -> dict[str, str | int | None]:
    """What a worker row keeps of its device: the parts that do not change every second."""
    return {
        "id": device.id,
        "kind": device.kind,
        "name": device.name,
        "memory_total_bytes": device.memory_total_bytes,
        "note": device.note,
    }


def save_workers(states: Iterable[WorkerState]) -> None:
    """Insert or update the row of each worker; an older word never overwrites a newer one."""
    for state in states:
        seen = dt.datetime.fromtimestamp(state.received, dt.UTC)
        fields = {
            "pool": state.pool[:63],
            "state": state.state,
            "device": identity(state.device),
            "last_seen_at": seen,
        }
        row, created = Worker.objects.get_or_create(
            machine=state.machine[:100], worker_id=state.worker[:100], defaults=fields
        )
        if not created:
            Worker.objects.filter(pk=row.pk, last_seen_at__lt=seen).update(**fields)


def save_rollups(machine: str, worker: str, rollups: Iterable[MinuteRollup]) -> bool:
    """Insert or replace roll-ups of one worker; ``False`` while the worker has no row yet."""
    row = Worker.objects.filter(machine=machine[:100], worker_id=worker[:100]).first()
    if row is None:
        return False
    with transaction.atomic():
        UtilizationMinute.objects.bulk_create(
            [
                UtilizationMinute(
                    worker=row,
                    minute=dt.datetime.fromtimestamp(rollup.minute, dt.UTC),
                    utilization=rollup.utilization,
                    busy=rollup.busy,
                    memory_used_bytes=rollup.memory_used_bytes,
                    requests=rollup.requests,
                    tokens=rollup.tokens,
                    errors=rollup.errors,
                    batch_rows=rollup.batch_rows,
                    batch_adapters=rollup.batch_adapters,
                    queue_p50_ms=rollup.queue_p50_ms,
                    queue_p95_ms=rollup.queue_p95_ms,
                )
                for rollup in rollups
            ],
            update_conflicts=True,
            unique_fields=["worker", "minute"],
            update_fields=_FIGURES,
        )
    return True
