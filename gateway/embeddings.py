"""``POST /v1/embeddings``: OpenAI's contract on top of the work queue."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping

from starlette.types import Receive, Scope, Send

from gateway.answers import Headers, answer, header_value
from gateway.body import ClientGone, read_body
from gateway.dispatch import Answer, Order, embed_texts
from gateway.endpoint import Endpoint
from gateway.parsing import EmbeddingsRequest, parse_embeddings
from gateway.plane import Plane
from gateway.routing import Target, resolve
from gateway.settings import MAX_TIMEOUT_MS
from gateway.vectors import embeddings_json
from wire.errors import Code, ShoalError
from wire.jobs import Task
from wire.registry import KeyRecord

TRACE_CHARS = 128


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
        request = parse_embeddings(body, max_inputs=settings.max_inputs, max_text_bytes=settings.max_text_bytes)
        target = _target(plane, request, key, request_headers)
        headers.append((b"x-shoal-version", header_value(target.version)))
        headers.append((b"x-shoal-digest", header_value(target.digest)))
        if plane.connection.is_connected:
            plane.presence.check(target.model)
        trace = request_headers.get(b"traceparent")
        order = Order(
            gateway_id=self.gateway.id,
            target=target,
            tenant=key.team,
            truncate=request.truncate,
            timeout_ms=timeout_ms,
            deadline=deadline,
            trace=trace.decode("latin-1")[:TRACE_CHARS] if trace else None,
        )
        # Watches for the client's leaving while the jobs are out; the one task that a one-job request costs.
        gone = asyncio.create_task(_until_gone(receive))
        try:
            result = await embed_texts(plane, self.gateway.metrics, order, request.texts, gone)
        finally:
            gone.cancel()
        await self._answer(send, request, result, headers)

    async def _answer(self, send: Send, request: EmbeddingsRequest, result: Answer, headers: Headers) -> None:
        outputs = result.outputs
        headers.append((b"x-shoal-queue-ms", b"%.1f" % result.queue_ms))
        headers.append((b"x-shoal-batch-size", b"%d" % result.batch_rows))
        if outputs.truncated:
            headers.append((b"x-shoal-truncated", b"%d" % outputs.truncated))
        await answer(send, 200, headers, embeddings_json(outputs, model=request.model, as_base64=request.base64))
        metrics = self.gateway.metrics
        metrics.queue_seconds.observe(result.queue_ms / 1000)
        metrics.inputs.inc(len(request.texts))
        metrics.tokens.inc(outputs.tokens)


def _target(plane: Plane, request: EmbeddingsRequest, key: KeyRecord, request_headers: Mapping[bytes, bytes]) -> Target:
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
