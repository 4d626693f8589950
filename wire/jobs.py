"""Jobs on the queue and their replies. Everything is keyed by digest, never by a name that can move."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from wire.errors import ErrorInfo

INLINE_PAYLOAD_BYTES = 512 * 1024


class Task(StrEnum):
    """What a job asks of a model."""

    EMBEDDINGS = "embeddings"
    RERANK = "rerank"
    CLASSIFY = "classify"
    TOKEN_CLASSIFY = "token-classify"  # noqa: S105
    GENERATE = "generate"


class EmbeddingInputs(msgspec.Struct, frozen=True, tag="embeddings", omit_defaults=True):
    """Texts to embed, in order. ``truncate`` cuts a text at the model's limit instead of refusing the job.

    ``prompt_name`` names a prompt of the model's sentence-transformers files (``query``, ``document``, …) that is put
    before each text; without one the model's default prompt is used, if it has one. ``input_type`` (``query``,
    ``document``, ``classification``, ``clustering``) prefers the prompt of that name where the model has it.
    """

    texts: list[str]
    truncate: bool = True
    prompt_name: str | None = None
    input_type: str | None = None


class RerankInputs(msgspec.Struct, frozen=True, tag="rerank", omit_defaults=True):
    """Documents to score against one query."""

    query: str
    documents: list[str]
    truncate: bool = True


class ClassifyInputs(msgspec.Struct, frozen=True, tag="classify", omit_defaults=True):
    """Texts to label, for ``Task.CLASSIFY`` and ``Task.TOKEN_CLASSIFY``."""

    texts: list[str]
    truncate: bool = True


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One turn of a chat, as the tokenizer's chat template takes it."""

    role: str
    content: str
    name: str | None = None


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How tokens are chosen. ``temperature`` 0 is greedy; ``top_k`` 0 and ``top_p`` 1 leave all tokens in.

    ``logprobs`` is the number of most likely tokens to report beside each chosen one; ``None`` reports none.
    ``stop`` strings end the text and are not part of it. ``max_tokens`` ``None`` is up to the model's limit.
    """

    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: list[str] = []
    logprobs: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    ignore_eos: bool = False


class GenerateInputs(msgspec.Struct, frozen=True, tag="generate", omit_defaults=True):
    """One text to continue: ``messages`` go through the chat template, ``prompt`` is taken as it is.

    With ``stream`` parts of the text are sent as they come, numbered from 0; else the whole text at the end.
    """

    messages: list[Message] = []
    prompt: str = ""
    sampling: Sampling = Sampling()
    stream: bool = False


class InputsReference(msgspec.Struct, frozen=True, tag="reference"):
    """Inputs above 512 KiB: MessagePack of the inputs struct as object ``name`` in the payload object store."""

    name: str
    size_bytes: int


TaskInputs = EmbeddingInputs | RerankInputs | ClassifyInputs | GenerateInputs
Inputs = TaskInputs | InputsReference


class Job(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request on the work queue.

    ``model`` and ``model_digest`` name what has weights of its own: a base model, or a version served ``merged`` or
    ``full`` (see ``wire.registry.ModelRecord``). ``adapter_digest`` is set for a ``packed`` version alone.
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


class RerankOutputs(msgspec.Struct, frozen=True, tag="rerank"):
    """A relevance score per document, in input order; larger is more relevant."""

    scores: list[float]
    tokens: int
    truncated: int = 0


class ClassifyOutputs(msgspec.Struct, frozen=True, tag="classify"):
    """``scores[i][j]`` is the probability of ``labels[j]`` for text ``i``: a softmax, or a sigmoid per label when
    ``multi_label``; a regression head gives its plain output."""

    labels: list[str]
    scores: list[list[float]]
    tokens: int
    truncated: int = 0
    multi_label: bool = False


class Entity(msgspec.Struct, frozen=True):
    """A labelled span of a text; ``start`` and ``end`` count characters, ``score`` is the mean probability."""

    label: str
    score: float
    start: int
    end: int


class TokenClassifyOutputs(msgspec.Struct, frozen=True, tag="token-classify"):
    """Entities of each text, in order of their start."""

    entities: list[list[Entity]]
    labels: list[str]
    tokens: int
    truncated: int = 0


class TokenLogprob(msgspec.Struct, frozen=True):
    """A token's text and natural-log probability; ``top`` are the most likely tokens at its place."""

    token: str
    logprob: float
    top: list[tuple[str, float]] = []


class GenerateOutputs(msgspec.Struct, frozen=True, tag="generate", omit_defaults=True):
    """Generated text: of one part when the job streams, else all of it.

    ``finish_reason`` (``stop`` or ``length``) is set on the last part alone, whose counts are those of the whole job.
    ``cached_tokens`` of the prompt came from another request with the same beginning.
    """

    text: str
    logprobs: list[TokenLogprob] = []
    finish_reason: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


Outputs = EmbeddingOutputs | RerankOutputs | ClassifyOutputs | TokenClassifyOutputs | GenerateOutputs


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker's answer to one job: either ``outputs`` or ``error``. ``number`` counts streamed parts from 0; parts
    that are not ``final`` are passed on at once and acknowledge nothing.

    ``queue_ms`` is from ``Job.published`` to the start of the batch, ``compute_ms`` the batch's forward time.
    """

    job: str
    model_digest: str = ""
    adapter_digest: str | None = None
    outputs: Outputs | None = None
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
    ``refused_until`` is set (seconds since the epoch) when its version is flagged: jobs of it ended several workers,
    and the machine refuses further ones until then.
    """

    job: Job
    error: ErrorInfo
    deliveries: int
    machine: str
    died: float
    raw: bytes | None = None
    refused_until: float | None = None


class Demand(msgspec.Struct, frozen=True):
    """Hint that work waits for a model: jobs and estimated tokens published since the gateway's last hint."""

    jobs: int
    tokens: int


class Presence(msgspec.Struct, frozen=True, omit_defaults=True):
    """Once a second from each sidecar: pool, and base models its live, undrained workers serve or can load.

    Versions with weights of their own are too many to be named each second: the machine serves every one of the pool
    that does one of ``version_tasks``.
    """

    machine: str
    pool: str
    models: list[str]
    workers: int
    at: float
    version_tasks: list[Task] = []
