"""Keeps the KV buckets equal to the database: a drain of the outbox, and a full comparison.

Values are always made from the database at the time of writing, and compared with it once more after the write. So
two drains at once, or a drain of old rows, end in the same state: whoever writes last looks again and corrects it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec
import structlog
from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings
from django.db.models import F, Q
from django.utils import timezone

from controlplane.accounts.registry import key_records
from controlplane.events.buckets import BucketsAway, read_names, read_records, registry_connection, write_record
from controlplane.events.models import Outbox
from fabric.connection import Connection
from fleet.registry import model_records
from loras.registry import adapter_records, version_model_records
from wire.subjects import ADAPTERS_BUCKET, KEYS_BUCKET, MODELS_BUCKET

log = structlog.get_logger("controlplane.registry")

Records = dict[str, msgspec.Struct]
SOURCES: dict[str, Callable[[list[str] | None], Records]] = {
    # first: an adapter's record names versions whose models must be known by then
    MODELS_BUCKET: lambda names: {**version_model_records(names), **model_records(names)},
    ADAPTERS_BUCKET: lambda names: {**adapter_records(names)},
    KEYS_BUCKET: lambda names: {**key_records(names)},
}
DRAIN_ROWS = 500
LOOKS = 5
BACK_OFF_MAX_S = 15


@dataclass(slots=True)
class Drained:
    """Outcome of a drain: entries written, and entries that wait with the reason."""

    written: int = 0
    waiting: int = 0
    error: str = ""


@dataclass(slots=True)
class Repairs:
    """Outcome of a full comparison, by entry ``bucket/name``."""

    rewritten: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


def drain_outbox_rows() -> Drained:
    """Write what due outbox rows name, then delete them. Rows that fail stay, with back-off up to 15 s."""
    now = timezone.now()
    due = Outbox.objects.filter(Q(not_before=None) | Q(not_before__lte=now)).order_by("id")
    rows = list(due.values_list("id", "bucket", "key")[:DRAIN_ROWS])
    if not rows:
        return Drained()
    entries = {(bucket, key) for _, bucket, key in rows}
    drained = Drained()
    try:
        done = async_to_sync(_write_entries)(sorted(entries, key=_models_first))
    except BucketsAway as error:
        done, drained.error = set(), str(error)
    finished = [row for row, bucket, key in rows if (bucket, key) in done]
    Outbox.objects.filter(pk__in=finished).delete()
    waiting = [row for row, bucket, key in rows if (bucket, key) not in done]
    _push_ahead(waiting, drained.error)
    drained.written, drained.waiting = len(done), len(waiting)
    if waiting:
        log.warning("registry entries wait for NATS", entries=len(waiting), error=drained.error)
    return drained


def reconcile_all() -> Repairs:
    """Compare every KV entry with the database and repair what differs. Raises ``BucketsAway``."""
    repairs: Repairs = async_to_sync(_reconcile)()
    if repairs.rewritten or repairs.removed:
        log.warning("registry repaired", rewritten=repairs.rewritten[:20], removed=repairs.removed[:20])
    return repairs


def _models_first(entry: tuple[str, str]) -> tuple[int, str]:
    bucket, name = entry
    return list(SOURCES).index(bucket) if bucket in SOURCES else len(SOURCES), name


async def _write_entries(entries: list[tuple[str, str]]) -> set[tuple[str, str]]:
    done = set()
    async with registry_connection(settings.SHOAL.nats_url) as connection:
        for bucket, name in entries:
            await _write_until_equal(connection, bucket, name)
            done.add((bucket, name))
    return done


async def _write_until_equal(connection: Connection, bucket: str, name: str) -> None:
    """Write the entry until the database says, after the write, what was written."""
    record = await _record(bucket, name)
    for _ in range(LOOKS):
        await write_record(connection, bucket, name, record)
        latest = await _record(bucket, name)
        if latest == record:
            return
        record = latest
    raise BucketsAway(f"{bucket}/{name} changed {LOOKS} times while it was written")


@sync_to_async
def _record(bucket: str, name: str) -> msgspec.Struct | None:
    return SOURCES[bucket]([name]).get(name)


async def _reconcile() -> Repairs:
    repairs = Repairs()
    async with registry_connection(settings.SHOAL.nats_url) as connection:
        for bucket, source in SOURCES.items():
            found = await read_records(connection, bucket)
            names = await read_names(connection, bucket)
            wanted = await sync_to_async(source)(None)
            for name in sorted(names | wanted.keys()):
                if found.get(name) == wanted.get(name) and (name in names) == (name in wanted):
                    continue
                await _write_until_equal(connection, bucket, name)
                (repairs.rewritten if name in wanted else repairs.removed).append(f"{bucket}/{name}")
    return repairs


def _push_ahead(ids: list[int], error: str) -> None:
    """Count the attempt and let the rows wait, longer each time, so that nothing loops hot on a dead server."""
    now = timezone.now()
    for row_id, attempts in Outbox.objects.filter(pk__in=ids).values_list("id", "attempts"):
        wait_s = min(2**attempts, BACK_OFF_MAX_S)
        Outbox.objects.filter(pk=row_id).update(
            attempts=F("attempts") + 1, not_before=now + timedelta(seconds=wait_s), last_error=error[:300]
        )
