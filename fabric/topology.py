"""Streams, consumers and buckets: the one owner of their settings, callable by every process.

What exists is compared with what is wanted; a difference is updated where NATS can, and refused loudly where
it cannot (storage, retention): serving on a queue with other guarantees than configured is a silent fault.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import structlog
from nats.js import JetStreamContext, api
from nats.js.errors import APIError, NotFoundError

from fabric.settings import QueueSettings as QueueSettings
from wire import subjects

log = structlog.get_logger(__name__)

DUPLICATE_WINDOW_S = 120.0
# Deadlines end at 300 s, so what is older than this waits for nobody and only takes room from others.
WORK_MAX_AGE_S = 900.0
DEAD_MAX_AGE_S = 7 * 24 * 3600.0
PAYLOAD_TTL_S = 600.0
MAX_ACK_PENDING = 20_000
MAX_WAITING_PULLS = 2_048
# A consumer that no sidecar asks for so long is removed by the server; the next ask makes it anew.
INACTIVE_S = 3600.0
NAME_IN_USE = 10058

_STREAM_FIELDS = (
    "subjects",
    "retention",
    "storage",
    "max_msgs",
    "max_bytes",
    "max_age",
    "max_msgs_per_subject",
    "discard",
    "discard_new_per_subject",
    "num_replicas",
    "duplicate_window",
    "allow_direct",
    "allow_rollup_hdrs",
    "deny_delete",
)
_CONSUMER_FIELDS = (
    "filter_subject",
    "ack_policy",
    "ack_wait",
    "max_deliver",
    "deliver_policy",
    "max_ack_pending",
    "max_waiting",
    "inactive_threshold",
)
_FIXED_FIELDS = frozenset({"retention", "storage", "ack_policy", "deliver_policy"})


class TopologyConflict(RuntimeError):
    """An existing stream or consumer has settings that cannot become the wanted ones."""


async def ensure_streams(js: JetStreamContext, settings: QueueSettings) -> None:
    """Make or update the streams WORK and DEAD. Raises ``TopologyConflict``; safe to repeat."""
    await _ensure_stream(js, _work_config(settings))
    await _ensure_stream(js, _dead_config(settings))


async def ensure_buckets(js: JetStreamContext, settings: QueueSettings) -> None:
    """Make or update the KV buckets and the payload store, all on disk. Raises ``TopologyConflict``."""
    for bucket in (subjects.MODELS_BUCKET, subjects.ADAPTERS_BUCKET, subjects.KEYS_BUCKET):
        await _ensure_stream(js, _bucket_config(bucket, settings))
    await _ensure_stream(js, _payload_config(settings))


async def ensure_consumer(
    js: JetStreamContext, pool: str, model: str, settings: QueueSettings, lane: str = subjects.LANE
) -> str:
    """Make or update the durable pull consumer of (pool, model, lane) on WORK; its durable name.

    Raises ``TopologyConflict``, and ``NotFoundError`` when the stream itself is missing.
    """
    durable = subjects.work_consumer(pool, model, lane)
    wanted = api.ConsumerConfig(
        durable_name=durable,
        filter_subject=subjects.work(pool, model, lane),
        ack_policy=api.AckPolicy.EXPLICIT,
        deliver_policy=api.DeliverPolicy.ALL,
        ack_wait=settings.ack_wait_s,
        max_deliver=settings.max_deliver,
        max_ack_pending=MAX_ACK_PENDING,
        max_waiting=MAX_WAITING_PULLS,
        inactive_threshold=INACTIVE_S,
    )
    try:
        existing = (await js.consumer_info(subjects.WORK_STREAM, durable)).config
    except NotFoundError:
        existing = None
    changed = [] if existing is None else _differences(existing, wanted, _CONSUMER_FIELDS)
    if existing is not None and not changed:
        return durable
    _refuse_fixed(f"consumer {durable}", existing, wanted, changed)
    try:
        await js.add_consumer(subjects.WORK_STREAM, wanted)
    except NotFoundError:
        raise
    except APIError as error:
        raise TopologyConflict(f"consumer {durable}: NATS refuses its settings: {error.description}") from error
    if changed:
        log.info("changed a consumer's settings", consumer=durable, fields=changed)
    return durable


async def delete_consumer(js: JetStreamContext, pool: str, model: str, lane: str = subjects.LANE) -> None:
    """Remove the consumer of (pool, model, lane); no error when it is not there."""
    with suppress(NotFoundError):
        await js.delete_consumer(subjects.WORK_STREAM, subjects.work_consumer(pool, model, lane))


def _work_config(settings: QueueSettings) -> api.StreamConfig:
    return api.StreamConfig(
        name=subjects.WORK_STREAM,
        subjects=[subjects.WORK_SUBJECTS],
        retention=api.RetentionPolicy.WORK_QUEUE,
        storage=api.StorageType(settings.storage),
        max_msgs=settings.max_messages,
        max_bytes=settings.max_bytes,
        max_age=WORK_MAX_AGE_S,
        max_msgs_per_subject=settings.max_model_messages,
        discard=api.DiscardPolicy.NEW,
        discard_new_per_subject=True,
        num_replicas=settings.replicas,
        duplicate_window=DUPLICATE_WINDOW_S,
    )


def _dead_config(settings: QueueSettings) -> api.StreamConfig:
    return api.StreamConfig(
        name=subjects.DEAD_STREAM,
        subjects=[subjects.DEAD_SUBJECTS],
        retention=api.RetentionPolicy.LIMITS,
        storage=api.StorageType.FILE,
        max_msgs=settings.max_messages,
        max_bytes=settings.max_bytes,
        max_age=DEAD_MAX_AGE_S,
        discard=api.DiscardPolicy.OLD,
        num_replicas=settings.replicas,
        duplicate_window=DUPLICATE_WINDOW_S,
    )


def _bucket_config(bucket: str, settings: QueueSettings) -> api.StreamConfig:
    return api.StreamConfig(
        name=f"KV_{bucket}",
        subjects=[f"$KV.{bucket}.>"],
        retention=api.RetentionPolicy.LIMITS,
        storage=api.StorageType.FILE,
        max_msgs_per_subject=1,
        discard=api.DiscardPolicy.NEW,
        num_replicas=settings.replicas,
        duplicate_window=DUPLICATE_WINDOW_S,
        allow_direct=True,
        allow_rollup_hdrs=True,
        deny_delete=True,
    )


def _payload_config(settings: QueueSettings) -> api.StreamConfig:
    bucket = subjects.PAYLOAD_BUCKET
    return api.StreamConfig(
        name=f"OBJ_{bucket}",
        subjects=[f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"],
        retention=api.RetentionPolicy.LIMITS,
        storage=api.StorageType.FILE,
        max_bytes=settings.max_bytes,
        max_age=PAYLOAD_TTL_S,
        discard=api.DiscardPolicy.NEW,
        num_replicas=settings.replicas,
        duplicate_window=DUPLICATE_WINDOW_S,
        allow_direct=True,
        allow_rollup_hdrs=True,
    )


async def _ensure_stream(js: JetStreamContext, wanted: api.StreamConfig) -> None:
    name = str(wanted.name)
    existing = await _existing_stream(js, name)
    if existing is None:
        try:
            await js.add_stream(wanted)
        except APIError as error:
            if error.err_code != NAME_IN_USE:
                raise TopologyConflict(f"stream {name}: NATS refuses its settings: {error.description}") from error
            # Another process made it between the look and the create, with other settings.
            existing = await _existing_stream(js, name)
        else:
            storage = wanted.storage.value if wanted.storage else None
            log.info("made a stream", stream=name, storage=storage, max_msgs=wanted.max_msgs)
            return
    if existing is None:
        raise TopologyConflict(f"stream {name} was made and deleted by others at the same time; start again")
    changed = _differences(existing, wanted, _STREAM_FIELDS)
    if not changed:
        return
    _refuse_fixed(f"stream {name}", existing, wanted, changed)
    try:
        await js.update_stream(wanted)
    except APIError as error:
        raise TopologyConflict(
            f"stream {name}: NATS refuses to change {', '.join(changed)}: {error.description}"
        ) from error
    log.info("changed a stream's settings", stream=name, fields=changed)


async def _existing_stream(js: JetStreamContext, name: str) -> api.StreamConfig | None:
    try:
        return (await js.stream_info(name)).config
    except NotFoundError:
        return None


def _differences(existing: object, wanted: object, fields: tuple[str, ...]) -> list[str]:
    return [field for field in fields if _plain(getattr(existing, field)) != _plain(getattr(wanted, field))]


def _plain(value: Any) -> Any:
    """NATS leaves out what is false or unlimited; -1, 0, ``None`` and ``False`` say the same there."""
    return None if value in (None, 0, -1, False) else value


def _refuse_fixed(what: str, existing: object, wanted: object, changed: list[str]) -> None:
    fixed = [field for field in changed if field in _FIXED_FIELDS]
    if fixed:
        details = ", ".join(
            f"{field} is {_shown(getattr(existing, field))}, wanted {_shown(getattr(wanted, field))}" for field in fixed
        )
        raise TopologyConflict(
            f"{what} exists with settings that NATS cannot change: {details}. Put the setting back, or "
            f"let the queue run empty and delete the {what.split(maxsplit=1)[0]}; a start makes it anew."
        )


def _shown(value: Any) -> str:
    return str(getattr(value, "value", value))
