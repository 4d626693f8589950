"""Every NATS name: streams, subjects, durable consumers, buckets. Encoded tokens make any model name legal."""

from __future__ import annotations

import re
import zlib

WORK_STREAM = "WORK"
WORK_SUBJECTS = "work.>"
DEAD_STREAM = "DEAD"
DEAD_SUBJECTS = "dead.>"

MODELS_BUCKET = "models"
ADAPTERS_BUCKET = "adapters"
KEYS_BUCKET = "keys"
PAYLOAD_BUCKET = "payloads"

LANE = "0"
LANES = 8
TELEMETRY_ALL = "telemetry.>"
PRESENCE_ALL = "presence.>"
USAGE_ALL = "usage.*"
CANCEL_ALL = "cancel.*"
DEMAND_ALL = "demand.>"

_PLAIN = re.compile(r"[A-Za-z0-9_-]")


def encode_token(name: str) -> str:
    """``name`` as one subject token and KV key: bytes outside ``[A-Za-z0-9_-]`` become ``=XX`` (hexadecimal)."""
    return "".join(char if _PLAIN.match(char) else "".join(f"={byte:02X}" for byte in char.encode()) for char in name)


def decode_token(token: str) -> str:
    """The name that :func:`encode_token` encoded."""
    raw = re.sub(rb"=([0-9A-F]{2})", lambda match: bytes([int(match.group(1), 16)]), token.encode())
    return raw.decode()


def work(pool: str, model: str, lane: str = LANE) -> str:
    """Subject a job for ``model`` in ``pool`` is published to."""
    return f"work.{encode_token(pool)}.{encode_token(model)}.{lane}"


def lane_of(adapter_digest: str | None, machines: int) -> str:
    """Lane of a job: ``0`` for base rows and while fewer than two machines serve, else 1 to ``LANES`` by adapter.

    Any lane is right for any job (every machine empties all of them); the hash only keeps an adapter's jobs together.
    """
    if adapter_digest is None or machines < 2:
        return LANE
    return str(1 + zlib.crc32(adapter_digest.encode()) % LANES)


def pool_work(pool: str) -> str:
    """All subjects of jobs in ``pool``."""
    return f"work.{encode_token(pool)}.>"


def work_consumer(pool: str, model: str, lane: str = LANE) -> str:
    """Durable name of the pull consumer of (pool, model, lane), shared by all sidecars. Legal in a durable name."""
    name = f"{encode_token(pool)}__{encode_token(model)}".replace("=", "~")
    # an encoded token never has two tildes in a row
    return name if lane == LANE else f"{name}~~{lane}"


def dead(pool: str, model: str) -> str:
    """Subject a job is kept under after its last delivery failed."""
    return f"dead.{encode_token(pool)}.{encode_token(model)}"


def demand(pool: str, model: str) -> str:
    """Subject of demand hints: how much work for (pool, model) was published lately."""
    return f"demand.{encode_token(pool)}.{encode_token(model)}"


def cancel(job_id: str) -> str:
    """Subject that tells every sidecar that nobody waits for ``job_id`` any more."""
    return f"cancel.{job_id}"


def reply(gateway_id: str, job_id: str) -> str:
    """Core NATS subject on which a gateway awaits the answer to ``job_id``."""
    return f"reply.{gateway_id}.{job_id}"


def reply_filter(gateway_id: str) -> str:
    """All replies of one gateway."""
    return f"reply.{gateway_id}.*"


def presence(machine: str) -> str:
    """Once a second each sidecar says here which models its live workers can serve."""
    return f"presence.{encode_token(machine)}"


def telemetry(machine: str, worker: str) -> str:
    """Once a second each worker's sample, forwarded by its sidecar."""
    return f"telemetry.{encode_token(machine)}.{encode_token(worker)}"


def command(machine: str) -> str:
    """Request/reply subject on which a sidecar takes commands for its workers (drain, resume, pin, evict)."""
    return f"command.{encode_token(machine)}"


def usage(gateway_id: str) -> str:
    """Once a second each gateway says here what its ended requests ran on and how they went."""
    return f"usage.{gateway_id}"
