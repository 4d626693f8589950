"""Jobs on the queue and their replies. Everything is keyed by digest, never by a name that can move."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from wire.errors import ErrorInfo

INLINE_PAYLOAD_BYTES = 512 * 1024


class Task(StrEnum):
    """What a job asks of a model."""

    EMBEDDINGS = "embeddings"


class EmbeddingInputs(msgspec.Struct, frozen=True, tag="embeddings"):
    """Texts to embed, in order. ``truncate`` cuts a text at the model's limit instead of refusing the job."""

    texts: list[str]
    truncate: bool = True


class InputsReference(msgspec.Struct, frozen=True, tag="reference"):
    """Inputs above 512 KiB: MessagePack of the inputs struct as object ``name`` in the payload object store."""

    name: str
    size_bytes: int


Inputs = EmbeddingInputs | InputsReference


class Job(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request on the work queue.

    ``deadline`` and ``published`` are seconds since the epoch (UTC). ``token_estimate`` is the gateway's guess of
    the tokens of all inputs together; sidecars and workers count room in it. ``version`` is for people (logs, UI).
    """

    id: str
    task: Task
    pool: str
    model: str
    model_digest: str
    inputs: Inputs
    tenant: str
    token_estimate: int
    deadline: float
    published: float
    reply: str
    adapter_digest: str | None = None
    version: str | None = None
    trace: str | None = None


class EmbeddingOutputs(msgspec.Struct, frozen=True, tag="embeddings"):
    """Vectors in input order: ``vectors`` is little-endian float32, row-major, shape (rows, dimension)."""

    dimension: int
    vectors: bytes
    tokens: int
    truncated: int = 0


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker's answer to one job: either ``outputs`` or ``error``. ``number`` counts streamed parts from 0.

    ``queue_ms`` is from ``Job.published`` to the start of the batch, ``compute_ms`` the batch's forward time.
    """

    job: str
    model_digest: str = ""
    adapter_digest: str | None = None
    outputs: EmbeddingOutputs | None = None
    error: ErrorInfo | None = None
    number: int = 0
    final: bool = True
    batch_rows: int = 0
    queue_ms: float = 0.0
    compute_ms: float = 0.0
    worker: str = ""


class DeadJob(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job that left the queue without an answer, kept with its payload and the reason.

    ``raw`` is set when the message was not readable as a job: ``job`` then only names pool and model.
    """

    job: Job
    error: ErrorInfo
    deliveries: int
    machine: str
    died: float
    raw: bytes | None = None


class Demand(msgspec.Struct, frozen=True):
    """Hint that work waits for a model: jobs and estimated tokens published since the gateway's last hint."""

    jobs: int
    tokens: int


class Presence(msgspec.Struct, frozen=True, omit_defaults=True):
    """Once a second from each sidecar: pool, and models its live, undrained workers serve or can load."""

    machine: str
    pool: str
    models: list[str]
    workers: int
    at: float
