"""What the installation is made of and how each part is, for the page that operators open first."""

from __future__ import annotations

import asyncio
import importlib.metadata
import platform
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import async_to_sync
from django.conf import settings
from django.db import DatabaseError
from django.db import connection as database
from kombu.exceptions import KombuError
from nats.errors import Error as NatsError
from nats.js.errors import APIError
from redis import Redis
from redis.exceptions import RedisError

from controlplane.events.models import Outbox
from fabric.connection import connect
from wire.subjects import DEAD_STREAM, WORK_STREAM

TIMEOUT_S = 3.0
LAG_ROWS = 200
PACKAGES = ("django", "celery", "channels", "nats-py", "redis", "torch", "transformers", "peft", "safetensors")


@dataclass(frozen=True, slots=True)
class Reading:
    """One line below a part: a figure with its name."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Part:
    """One part: ``state`` is ready, note or fail; ``hint`` is the next step when it is not ready."""

    name: str
    state: str
    summary: str
    hint: str = ""
    readings: list[Reading] = field(default_factory=list)


def read_system() -> list[Part]:
    """All parts, each within three seconds; one that is away says so and hides no other."""
    return [_database(), _redis(), _celery(), *_nats(), _outbox(), _storage(), _versions()]


def _timed(look: Callable[[], Any]) -> tuple[Any, str]:
    began = time.perf_counter()
    found = look()
    return found, f"answered in {(time.perf_counter() - began) * 1000:.0f} ms"


def _database() -> Part:
    def look() -> str:
        with database.cursor() as cursor:
            cursor.execute("SELECT 1")
        version = database.Database.sqlite_version if database.vendor == "sqlite" else str(database.pg_version)  # type: ignore[attr-defined]
        return f"{database.display_name} {version}"

    try:
        name, took = _timed(look)
    except DatabaseError as error:
        return Part("Database", "fail", _short(error), "Start it, or set DATABASE_URL. Serving goes on without it.")
    return Part("Database", "ready", took, readings=[Reading("Server", name)])


def _redis() -> Part:
    client: Redis = Redis.from_url(settings.SHOAL.redis_url, socket_timeout=TIMEOUT_S, socket_connect_timeout=1)
    try:
        with client:
            info, took = _timed(lambda: client.info())
    except (RedisError, OSError) as error:
        return Part("Redis", "fail", _short(error), "Start it: live pages and Celery wait. Serving goes on without it.")
    memory = f"{info.get('used_memory_human', '?')} used, {info.get('connected_clients', '?')} clients"
    version = info.get("valkey_version") or info.get("redis_version", "?")
    return Part("Redis", "ready", took, readings=[Reading("Version", str(version)), Reading("Memory", memory)])


def _celery() -> Part:
    from controlplane.celery import app

    try:
        answers = app.control.inspect(timeout=1.0).ping() or {}
    except (KombuError, RedisError, OSError) as error:
        return Part("Celery", "fail", _short(error), "Its broker is Redis: start that first.")
    if not answers:
        return Part("Celery", "fail", "no worker answers", "Start `celery -A controlplane.celery:app worker -B`.")
    return Part("Celery", "ready", f"{len(answers)} workers answer", readings=[Reading("Worker", n) for n in answers])


def _nats() -> list[Part]:
    try:
        found: list[Part] = async_to_sync(_streams)()
    except (NatsError, APIError, OSError, TimeoutError) as error:
        hint = "Start nats-server with JetStream, or set NATS_URL. Nothing is served without it."
        return [Part("NATS", "fail", _short(error), hint)]
    return found


async def _streams() -> list[Part]:
    async with asyncio.timeout(TIMEOUT_S):
        client = await connect(settings.SHOAL.nats_url, name="web system")
    try:
        js = client.jetstream(timeout=TIMEOUT_S)
        streams = {info.config.name: info for info in await js.streams_info()}
        version = str(client._server_info.get("version", "?"))
        readings = [
            Reading(name or "?", f"{info.state.messages:,} messages, {info.state.bytes:,} bytes")
            for name, info in sorted(streams.items(), key=lambda item: str(item[0]))
        ]
        parts = [Part("NATS", "ready", f"version {version}, {len(streams)} streams", readings=readings)]
        if WORK_STREAM not in streams:
            hint = "The gateway makes it when it starts; is one running?"
            return [*parts, Part("Work queue", "note", f"there is no stream {WORK_STREAM} yet", hint)]
        waiting = streams[WORK_STREAM].state.messages
        lags = [
            Reading(info.name or "?", f"{info.num_pending or 0:,} waiting, {info.num_ack_pending or 0:,} in work")
            for info in (await js.consumers_info(WORK_STREAM))[:LAG_ROWS]
        ]
        parts.append(Part("Work queue", "ready", f"{waiting:,} jobs on the queue", readings=lags))
        dead = streams[DEAD_STREAM].state.messages if DEAD_STREAM in streams else 0
        hint = "Look at them on the page of dead jobs." if dead else ""
        parts.append(Part("Dead jobs", "note" if dead else "ready", f"{dead:,} kept", hint))
        return parts
    finally:
        await client.close()


def _outbox() -> Part:
    try:
        oldest = Outbox.objects.order_by("id").first()
        waiting = Outbox.objects.count()
    except DatabaseError as error:
        return Part("Registry outbox", "fail", _short(error))
    if oldest is None:
        return Part("Registry outbox", "ready", "gateways know everything")
    hint = "Is a Celery worker with beat running, and NATS up?" if oldest.attempts else ""
    state = "fail" if oldest.attempts else "note"
    return Part("Registry outbox", state, f"{waiting:,} entries wait. {oldest.last_error}".strip(), hint)


def _storage() -> Part:
    try:
        usage = shutil.disk_usage(settings.SHOAL.home)
    except OSError as error:
        return Part("Storage", "fail", _short(error), f"Is {settings.SHOAL.home} there and readable?")
    free = usage.free / usage.total
    where = settings.SHOAL.storage_url or f"file://{settings.SHOAL.home / 'artifacts'}"
    readings = [
        Reading("Artifacts", where.split("?")[0]),
        Reading("Free", f"{usage.free / 1e9:.1f} GB"),
    ]
    if free < 0.05:
        return Part("Storage", "fail", f"{free:.0%} free", "Delete versions, lower SHOAL_CACHE_BYTES.", readings)
    return Part("Storage", "ready", f"{free:.0%} free", readings=readings)


def _versions() -> Part:
    readings = [Reading("Python", platform.python_version())]
    for name in PACKAGES:
        try:
            readings.append(Reading(name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            readings.append(Reading(name, "not installed here"))
    return Part("Versions", "ready", f"Shoal {_own_version()}", readings=readings)


def _own_version() -> str:
    try:
        return importlib.metadata.version("shoal")
    except importlib.metadata.PackageNotFoundError:
        return "from a checkout"


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]
