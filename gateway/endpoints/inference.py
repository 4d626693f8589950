"""The common path of all tasks: body, target, jobs, answer."""

from __future__ import annotations

import asyncio
import random
import time
from abc import abstractmethod
from functools import partial
from typing import Generic, Protocol, TypeVar

from gateway.answers import Headers, answer, header_value
from gateway.bodies.texts import TextBounds
from gateway.body import ClientGone, read_body
from gateway.dispatch import Done, Order
from gateway.endpoints.endpoint import Endpoint, Exchange
from gateway.plane import Gateway, Plane
from gateway.protocol import call_when_gone
from gateway.routing import Target, resolve
from gateway.settings import MAX_TIMEOUT_MS
from wire.errors import Code, ShoalError
from wire.jobs import Outputs, Task

TRACE_CHARS = 128


class Asked(Protocol):
    """What every accepted body has."""

    @property
    def model(self) -> str: ...

    @property
    def user(self) -> str | None: ...


R = TypeVar("R", bound=Asked)
O = TypeVar("O", bound=Outputs)  # noqa: E741 - outputs


class Inference(Endpoint, Generic[R]):
    """An endpoint whose work is done by jobs. Subclasses set ``tasks`` and write ``parse`` and ``serve``."""

    method = "POST"
    tasks: tuple[Task, ...] = ()

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(gateway)
        self.bounds = gateway.settings.text_bounds
        self.default_timeout_ms = gateway.settings.request_timeout_ms

    @abstractmethod
    def parse(self, body: bytes, bounds: TextBounds) -> R:
        """The request in ``body``. Raises ``ShoalError``."""

    def check(self, request: R, target: Target) -> None:
        """Raise ``ShoalError`` where ``request`` asks for what ``target`` cannot do."""

    @abstractmethod
    async def serve(self, exchange: Exchange, plane: Plane, order: Order, request: R) -> None:
        """Run the jobs of ``request`` and answer."""

    async def handle(self, exchange: Exchange) -> None:
        """Everything but ``serve``."""
        plane = self.gateway.plane()
        timeout_ms = _timeout_ms(exchange.request_headers.get(b"x-shoal-timeout-ms"), self.default_timeout_ms)
        deadline = time.time() + timeout_ms / 1000
        request = self.parse(await self._body(exchange), self.bounds)
        target = exchange.target = self._target(plane, request, exchange)
        exchange.headers.append((b"x-shoal-version", header_value(target.version)))
        exchange.headers.append((b"x-shoal-digest", header_value(target.digest)))
        self.check(request, target)
        if plane.connection.is_connected:
            plane.presence.check(target.model)
        trace = exchange.request_headers.get(b"traceparent")
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        call_when_gone(exchange.scope, partial(_note_gone, gone))
        order = Order(
            gateway_id=self.gateway.id,
            target=target,
            tenant=exchange.key.team,
            timeout_ms=timeout_ms,
            deadline=deadline,
            trace=trace.decode("latin-1")[:TRACE_CHARS] if trace else None,
            gone=gone,
        )
        try:
            await self.serve(exchange, plane, order, request)
        finally:
            # Looked at in any case: asyncio complains of an exception that nobody has seen.
            if not gone.cancel() and not gone.cancelled():
                gone.exception()

    async def answer(
        self, exchange: Exchange, done: Done[O], body: bytes, *, inputs: int, tokens: int, truncated: int = 0
    ) -> None:
        """Send a whole answer and count it."""
        exchange.tokens = tokens
        exchange.headers += job_headers(done.queue_ms, done.batch_rows)
        if truncated:
            exchange.headers.append((b"x-shoal-truncated", b"%d" % truncated))
        await answer(exchange.send, 200, exchange.headers, body)
        self.observe(done.queue_ms, inputs=inputs, tokens=tokens)

    def observe(self, queue_ms: float, *, inputs: int, tokens: int) -> None:
        """Count an answered request."""
        metrics = self.gateway.metrics
        metrics.queue_seconds.observe(queue_ms / 1000)
        metrics.inputs.inc(inputs)
        metrics.tokens.inc(tokens)

    async def _body(self, exchange: Exchange) -> bytes:
        settings = self.gateway.settings
        limits = self.gateway.limits
        length = exchange.request_headers.get(b"content-length")
        declared = int(length) if length is not None and length.isdigit() else settings.max_body_bytes
        # What will be read is counted before it is: many large bodies at once must not fill the memory.
        exchange.held_bytes = limits.hold(min(declared, settings.max_body_bytes))
        body = await read_body(
            exchange.scope,
            exchange.receive,
            content_length=length,
            limit_bytes=settings.max_body_bytes,
            timeout_s=settings.body_timeout_s,
        )
        limits.release(exchange.held_bytes - len(body))
        exchange.held_bytes = len(body)
        return body

    def _target(self, plane: Plane, request: R, exchange: Exchange) -> Target:
        session = exchange.request_headers.get(b"x-shoal-session")
        return resolve(
            request.model,
            team=exchange.key.team,
            tasks=self.tasks,
            models=plane.models.records,
            adapters=plane.adapters.records,
            draw=random.random(),  # noqa: S311 - splits traffic, guards nothing
            session=session.decode("latin-1") if session else request.user,
        )


def job_headers(queue_ms: float, batch_rows: int) -> Headers:
    """Headers that tell how the job ran."""
    return [(b"x-shoal-queue-ms", b"%.1f" % queue_ms), (b"x-shoal-batch-size", b"%d" % batch_rows)]


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


def _note_gone(gone: asyncio.Future[None]) -> None:
    if not gone.done():
        gone.set_exception(ClientGone())
