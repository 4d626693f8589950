"""``POST /v1/embeddings``: OpenAI's contract on top of the work queue."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress

import nats.errors
import structlog
from nats.js.errors import APIError
from starlette.types import Receive, Scope, Send

from fabric.payloads import delete_payload, put_payload
from gateway.answers import Headers, answer, header_value
from gateway.body import ClientGone, read_body
from gateway.endpoint import Endpoint
from gateway.parsing import EmbeddingsRequest, estimate_tokens, parse_embeddings
from gateway.plane import Plane
from gateway.routing import Target, resolve
from gateway.settings import MAX_TIMEOUT_MS
from gateway.vectors import embeddings_json
from gateway.waiters import unavailable
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
from wire.registry import KeyRecord

log = structlog.get_logger(__name__)

# MessagePack adds at most five bytes to a text, JSON at least three: bodies this far below the bound need no measuring.
MEASURED_FROM_BYTES = INLINE_PAYLOAD_BYTES - 64 * 1024


class Embeddings(Endpoint):
    """Vectors for one text or many."""

    name = "embeddings"
    method = "POST"

    async def handle(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        key: KeyRecord,
        request_headers: Mapping[bytes, bytes],
        headers: Headers,
    ) -> None:
        settings = self.gateway.settings
        plane = self.gateway.plane()
        timeout_ms = _timeout_ms(request_headers.get(b"x-shoal-timeout-ms"), settings.request_timeout_ms)
        deadline = time.time() + timeout_ms / 1000
        body = await read_body(
            scope,
            receive,
            content_length=request_headers.get(b"content-length"),
            limit_bytes=settings.max_body_bytes,
            timeout_s=settings.body_timeout_s,
        )
        request = parse_embeddings(body, max_inputs=settings.max_inputs)
        target = self._resolve(plane, request, key, request_headers)
        headers.append((b"x-shoal-version", header_value(target.version)))
        headers.append((b"x-shoal-digest", header_value(target.digest)))
        if plane.connection.is_connected:
            plane.presence.check(target.model)
        # Watches for the client's leaving while the job is out; costs one task, the only one of a request.
        gone = asyncio.create_task(_until_gone(receive))
        inputs: Inputs | None = None
        try:
            inputs = await _inputs(plane, request, len(body))
            job = self._job(target, request, inputs, key, deadline, request_headers)
            plane.demand.add(job.pool, job.model, job.token_estimate)
            result = await plane.queue.run_job(job, timeout_ms=timeout_ms, gone=gone)
        finally:
            gone.cancel()
            if isinstance(inputs, InputsReference):
                await _drop_payload(plane, inputs)
        outputs = self._checked(result, target, len(request.texts))
        await self._answer(send, request, result, outputs, headers)

    def _resolve(
        self, plane: Plane, request: EmbeddingsRequest, key: KeyRecord, request_headers: Mapping[bytes, bytes]
    ) -> Target:
        session = request_headers.get(b"x-shoal-session")
        return resolve(
            request.model,
            team=key.team,
            task=Task.EMBEDDINGS,
            models=plane.models.records,
            adapters=plane.adapters.records,
            draw=random.random(),  # noqa: S311 - splits traffic, guards nothing
            session=session.decode("latin-1") if session else request.user,
        )

    def _job(
        self,
        target: Target,
        request: EmbeddingsRequest,
        inputs: Inputs,
        key: KeyRecord,
        deadline: float,
        request_headers: Mapping[bytes, bytes],
    ) -> Job:
        job_id = uuid.uuid4().hex
        trace = request_headers.get(b"traceparent")
        return Job(
            id=job_id,
            task=Task.EMBEDDINGS,
            pool=target.model.pool,
            model=target.model.id,
            model_digest=target.model.digest,
            adapter_digest=target.adapter_digest,
            version=target.version,
            inputs=inputs,
            tenant=key.team,
            token_estimate=estimate_tokens(request.texts, target.model.max_tokens),
            deadline=deadline,
            published=time.time(),
            reply=subjects.reply(self.gateway.id, job_id),
            trace=trace.decode("latin-1")[:128] if trace else None,
        )

    def _checked(self, result: Result, target: Target, rows: int) -> EmbeddingOutputs:
        """The outputs of ``result``, made by what was asked for. Raises ``ShoalError``."""
        if result.error is not None:
            error = result.error
            raise ShoalError(error.code, error.message, param=error.param, hint=error.hint)
        if result.adapter_digest != target.adapter_digest or (
            result.model_digest and result.model_digest != target.model.digest
        ):
            self.gateway.metrics.mismatches.inc()
            log.error("answer of another version discarded", worker=result.worker, asked=target.version)
            raise ShoalError(
                Code.INTERNAL,
                f"Worker {result.worker or '?'} answered with another version than {target.version}; "
                "the answer was discarded.",
                hint="Try again.",
            )
        outputs = result.outputs
        if outputs is None or outputs.dimension < 1 or len(outputs.vectors) != rows * outputs.dimension * 4:
            log.error("answer of wrong size discarded", worker=result.worker, job=result.job, rows=rows)
            raise ShoalError(
                Code.INTERNAL,
                f"Worker {result.worker or '?'} answered with vectors of a wrong size.",
                hint="Try again.",
            )
        return outputs

    async def _answer(
        self,
        send: Send,
        request: EmbeddingsRequest,
        result: Result,
        outputs: EmbeddingOutputs,
        headers: Headers,
    ) -> None:
        headers.append((b"x-shoal-queue-ms", b"%.1f" % result.queue_ms))
        headers.append((b"x-shoal-batch-size", b"%d" % result.batch_rows))
        if outputs.truncated:
            headers.append((b"x-shoal-truncated", b"%d" % outputs.truncated))
        await answer(send, 200, headers, embeddings_json(outputs, model=request.model, as_base64=request.base64))
        metrics = self.gateway.metrics
        metrics.queue_seconds.observe(result.queue_ms / 1000)
        metrics.inputs.inc(len(request.texts))
        metrics.tokens.inc(outputs.tokens)


def _timeout_ms(given: bytes | None, default_ms: int) -> int:
    if given is None:
        return default_ms
    text = given.strip()
    if not text.isdigit() or len(text) > 9 or not 1 <= int(text) <= MAX_TIMEOUT_MS:
        raise ShoalError(
            Code.INVALID_REQUEST,
            f"The header x-shoal-timeout-ms must be a whole number from 1 to {MAX_TIMEOUT_MS}.",
            param="x-shoal-timeout-ms",
        )
    return int(text)


async def _until_gone(receive: Receive) -> None:
    # After the whole body the server has nothing more to say than that the client left.
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientGone


async def _inputs(plane: Plane, request: EmbeddingsRequest, body_bytes: int) -> Inputs:
    """Inputs as they travel: inside the job, or by reference when they are large."""
    inputs = EmbeddingInputs(texts=request.texts, truncate=request.truncate)
    if body_bytes < MEASURED_FROM_BYTES:
        return inputs
    data = codec.encode(inputs)
    if len(data) <= INLINE_PAYLOAD_BYTES:
        return inputs
    if not plane.connection.is_connected:
        raise unavailable("The store for large inputs cannot be reached: not connected to NATS.")
    try:
        name = await put_payload(plane.connection.jetstream(), data)
    except (APIError, nats.errors.Error, TimeoutError) as error:
        raise unavailable(f"The store for large inputs cannot be used: {error!r}.") from error
    return InputsReference(name=name, size_bytes=len(data))


async def _drop_payload(plane: Plane, reference: InputsReference) -> None:
    # Best effort: what stays is dropped by its age.
    if plane.connection.is_connected:
        with suppress(APIError, nats.errors.Error, TimeoutError):
            await delete_payload(plane.connection.jetstream(), reference.name)
