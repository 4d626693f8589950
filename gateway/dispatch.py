"""From a task's inputs to its outputs over the queue: one job, or several when one answer would not fit a message."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import nats.errors
import structlog
from nats.js.errors import APIError

from fabric.payloads import delete_payload, put_payload
from gateway.metrics import Metrics
from gateway.plane import Plane
from gateway.routing import Target
from gateway.waiters import late, unavailable
from wire import codec, subjects
from wire.errors import Code, ShoalError
from wire.jobs import INLINE_PAYLOAD_BYTES, Inputs, InputsReference, Job, Outputs, Result, TaskInputs

log = structlog.get_logger(__name__)

# Room for the rest of a result beside its outputs.
ANSWER_SHARE = 0.75

O = TypeVar("O", bound=Outputs)  # noqa: E741 - outputs


@dataclass(frozen=True, slots=True)
class Order:
    """What all jobs of one request share. ``deadline`` is seconds since the epoch; ``gone`` fails when the client
    leaves."""

    gateway_id: str
    target: Target
    tenant: str
    timeout_ms: int
    deadline: float
    trace: str | None
    gone: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class Work(Generic[O]):
    """One job's share of a request. ``chars`` counts the characters of its ``texts`` texts; ``fits`` tells whether
    outputs are an answer to these inputs."""

    inputs: TaskInputs
    token_estimate: int
    chars: int
    texts: int
    outputs: type[O]
    fits: Callable[[O], bool]


@dataclass(frozen=True, slots=True)
class Done(Generic[O]):
    """Outputs of all works in order, and the slowest job's queue time and largest batch."""

    outputs: list[O]
    queue_ms: float
    batch_rows: int


def rows_per_job(max_payload_bytes: int, row_bytes: int) -> int:
    """How many rows of an answer fit one message."""
    return max(1, int(max_payload_bytes * ANSWER_SHARE) // row_bytes)


async def run_works(plane: Plane, metrics: Metrics, order: Order, works: Sequence[Work[O]]) -> Done[O]:
    """Outputs of all ``works``. Raises ``ShoalError``, and what ``order.gone`` fails with."""
    if len(works) == 1:
        result, outputs = await _run(plane, metrics, order, works[0])
        return Done([outputs], result.queue_ms, result.batch_rows)
    tasks = [asyncio.create_task(_run(plane, metrics, order, work)) for work in works]
    try:
        parts = await asyncio.gather(*tasks)
    except BaseException:
        # One part's failure is the request's: nobody waits for the others.
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise
    return Done(
        [outputs for _, outputs in parts],
        queue_ms=max(result.queue_ms for result, _ in parts),
        batch_rows=max(result.batch_rows for result, _ in parts),
    )


async def stream_work(
    plane: Plane, metrics: Metrics, order: Order, work: Work[O], *, idle_s: float
) -> AsyncGenerator[tuple[Result, O]]:
    """Parts of the outputs of ``work`` as they come. Raises as ``run_works`` does."""
    inputs = await _travelling(plane, work, order)
    job = _job(order, inputs, work.token_estimate)
    plane.demand.add(job.pool, job.model, job.token_estimate)
    parts = plane.queue.stream_job(
        job, lane=_lane(plane, job), timeout_ms=order.timeout_ms, idle_s=idle_s, gone=order.gone
    )
    try:
        async with aclosing(parts):
            async for part in parts:
                yield part, _checked(part, metrics, order.target, work)
    finally:
        _drop_later(plane, inputs)


async def _run(plane: Plane, metrics: Metrics, order: Order, work: Work[O]) -> tuple[Result, O]:
    inputs = await _travelling(plane, work, order)
    try:
        job = _job(order, inputs, work.token_estimate)
        plane.demand.add(job.pool, job.model, job.token_estimate)
        result = await plane.queue.run_job(job, lane=_lane(plane, job), timeout_ms=order.timeout_ms, gone=order.gone)
    finally:
        _drop_later(plane, inputs)
    return result, _checked(result, metrics, order.target, work)


def _job(order: Order, inputs: Inputs, token_estimate: int) -> Job:
    job_id = os.urandom(16).hex()
    target = order.target
    return Job(
        id=job_id,
        task=target.task,
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


def _lane(plane: Plane, job: Job) -> str:
    return subjects.lane_of(job.adapter_digest, plane.presence.machines(job.pool))


def _checked(result: Result, metrics: Metrics, target: Target, work: Work[O]) -> O:
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
    if not isinstance(outputs, work.outputs) or not work.fits(outputs):
        log.error("answer that does not fit discarded", worker=worker, job=result.job, task=target.task.value)
        raise ShoalError(
            Code.INTERNAL,
            f"Worker {worker} answered with something that does not fit the {work.texts} inputs.",
            hint="Try again.",
        )
    return outputs


async def _travelling(plane: Plane, work: Work[Any], order: Order) -> Inputs:
    """Inputs as they travel: inside the job, or by reference when they are large."""
    # A character has at most four bytes of UTF-8, and MessagePack and a message's other fields add less than 64
    # to a text: most need no measuring.
    if 4 * work.chars + 64 * work.texts <= INLINE_PAYLOAD_BYTES:
        return work.inputs
    data = codec.encode(work.inputs)
    if len(data) <= INLINE_PAYLOAD_BYTES:
        return work.inputs
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


def _drop_later(plane: Plane, inputs: Inputs) -> None:
    if isinstance(inputs, InputsReference):
        # In the background: the answer does not wait for a store that is slow to delete.
        plane.in_background(_drop_payload(plane, inputs))


async def _drop_payload(plane: Plane, reference: InputsReference) -> None:
    # Best effort: what stays is dropped by its age.
    if plane.connection.is_connected:
        with suppress(APIError, nats.errors.Error, TimeoutError):
            await delete_payload(plane.connection.jetstream(), reference.name)
