"""From texts to vectors over the queue: one job, or several when one answer would not fit a NATS message."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass

import nats.errors
import structlog
from nats.js.errors import APIError

from fabric.payloads import delete_payload, put_payload
from gateway.metrics import Metrics
from gateway.parsing import estimate_tokens
from gateway.plane import Plane
from gateway.routing import Target
from gateway.waiters import late, unavailable
from wire import codec, subjects
from wire.errors import Code, ShoalError
from wire.jobs import (
    INLINE_PAYLOAD_BYTES,
    EmbeddingInputs,
    EmbeddingOutputs,
    Inputs,
    InputsReference,
    Job,
    Result,
    Task,
)

log = structlog.get_logger(__name__)

FLOAT_BYTES = 4
# Room for the rest of a result beside its vectors.
ANSWER_SHARE = 0.75
# A base model that does not tell its dimension is taken for a wide one.
ASSUMED_DIMENSION = 4096


@dataclass(frozen=True, slots=True)
class Order:
    """What all jobs of one request share. ``deadline`` is seconds since the epoch."""

    gateway_id: str
    target: Target
    tenant: str
    truncate: bool
    timeout_ms: int
    deadline: float
    trace: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """Vectors of all texts in order, and the slowest job's queue time and largest batch."""

    outputs: EmbeddingOutputs
    queue_ms: float
    batch_rows: int


async def embed_texts(
    plane: Plane, metrics: Metrics, order: Order, texts: list[str], gone: asyncio.Future[None]
) -> Answer:
    """Vectors of ``texts``. ``gone`` fails when the client leaves. Raises ``ShoalError``."""
    rows = rows_per_job(plane.connection.max_payload, order.target.model.dimension)
    if len(texts) <= rows:
        result, outputs = await _run_checked(plane, metrics, order, texts, gone)
        return Answer(outputs, result.queue_ms, result.batch_rows)
    tasks = [
        asyncio.create_task(_run_checked(plane, metrics, order, texts[start : start + rows], gone))
        for start in range(0, len(texts), rows)
    ]
    try:
        parts = await asyncio.gather(*tasks)
    except BaseException:
        # One part's failure is the request's: nobody waits for the others.
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise
    return _joined(parts)


def _joined(parts: list[tuple[Result, EmbeddingOutputs]]) -> Answer:
    dimensions = {outputs.dimension for _, outputs in parts}
    if len(dimensions) != 1:
        raise ShoalError(Code.INTERNAL, f"Workers answered with different dimensions: {sorted(dimensions)}.")
    outputs = EmbeddingOutputs(
        dimension=dimensions.pop(),
        vectors=b"".join(part.vectors for _, part in parts),
        tokens=sum(part.tokens for _, part in parts),
        truncated=sum(part.truncated for _, part in parts),
    )
    return Answer(
        outputs,
        queue_ms=max(result.queue_ms for result, _ in parts),
        batch_rows=max(result.batch_rows for result, _ in parts),
    )


def rows_per_job(max_payload_bytes: int, dimension: int | None) -> int:
    """How many vectors fit one answer."""
    return max(1, int(max_payload_bytes * ANSWER_SHARE) // ((dimension or ASSUMED_DIMENSION) * FLOAT_BYTES))


async def _run_checked(
    plane: Plane, metrics: Metrics, order: Order, texts: list[str], gone: asyncio.Future[None]
) -> tuple[Result, EmbeddingOutputs]:
    inputs = await _inputs(plane, EmbeddingInputs(texts=texts, truncate=order.truncate), order)
    try:
        job = _job(order, inputs, estimate_tokens(texts, order.target.model.max_tokens))
        plane.demand.add(job.pool, job.model, job.token_estimate)
        result = await plane.queue.run_job(job, timeout_ms=order.timeout_ms, gone=gone)
    finally:
        if isinstance(inputs, InputsReference):
            # In the background: the answer does not wait for a store that is slow to delete.
            plane.in_background(_drop_payload(plane, inputs))
    return result, _checked(result, metrics, order.target, len(texts))


def _job(order: Order, inputs: Inputs, token_estimate: int) -> Job:
    job_id = uuid.uuid4().hex
    target = order.target
    return Job(
        id=job_id,
        task=Task.EMBEDDINGS,
        pool=target.model.pool,
        model=target.model.id,
        model_digest=target.model.digest,
        adapter_digest=target.adapter_digest,
        version=target.version,
        inputs=inputs,
        tenant=order.tenant,
        token_estimate=token_estimate,
        deadline=order.deadline,
        published=time.time(),
        reply=subjects.reply(order.gateway_id, job_id),
        trace=order.trace,
    )


def _checked(result: Result, metrics: Metrics, target: Target, rows: int) -> EmbeddingOutputs:
    """The outputs of ``result``, made by what was asked for. Raises ``ShoalError``."""
    if result.error is not None:
        error = result.error
        raise ShoalError(error.code, error.message, param=error.param, hint=error.hint)
    worker = result.worker or "?"
    if result.adapter_digest != target.adapter_digest or (
        result.model_digest and result.model_digest != target.model.digest
    ):
        metrics.mismatches.inc()
        log.error("answer of another version discarded", worker=worker, asked=target.version)
        raise ShoalError(
            Code.INTERNAL,
            f"Worker {worker} answered with another version than {target.version}; the answer was discarded.",
            hint="Try again.",
        )
    outputs = result.outputs
    if (
        not isinstance(outputs, EmbeddingOutputs)
        or outputs.dimension < 1
        or len(outputs.vectors) != rows * outputs.dimension * FLOAT_BYTES
    ):
        log.error("answer of wrong size discarded", worker=worker, job=result.job, rows=rows)
        raise ShoalError(Code.INTERNAL, f"Worker {worker} answered with vectors of a wrong size.", hint="Try again.")
    return outputs


async def _inputs(plane: Plane, inputs: EmbeddingInputs, order: Order) -> Inputs:
    """Inputs as they travel: inside the job, or by reference when they are large."""
    # A character has at most four bytes of UTF-8, MessagePack adds at most five to a text: most need no measuring.
    if 4 * sum(map(len, inputs.texts)) + 5 * len(inputs.texts) <= INLINE_PAYLOAD_BYTES:
        return inputs
    data = codec.encode(inputs)
    if len(data) <= INLINE_PAYLOAD_BYTES:
        return inputs
    if not plane.connection.is_connected:
        raise unavailable("The store for large inputs cannot be reached: not connected to NATS.")
    deadline = asyncio.timeout(max(0.0, order.deadline - time.time()))
    try:
        async with deadline:
            name = await put_payload(plane.connection.jetstream(), data)
    except (APIError, nats.errors.Error, TimeoutError) as error:
        if deadline.expired():
            raise late(order.timeout_ms, "the store for large inputs had not taken them") from error
        raise unavailable(f"The store for large inputs cannot be used: {error!r}.") from error
    return InputsReference(name=name, size_bytes=len(data))


async def _drop_payload(plane: Plane, reference: InputsReference) -> None:
    # Best effort: what stays is dropped by its age.
    if plane.connection.is_connected:
        with suppress(APIError, nats.errors.Error, TimeoutError):
            await delete_payload(plane.connection.jetstream(), reference.name)
