"""What every authenticated endpoint does around its own work: request id, key, limits, usage, metrics, errors."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass

import structlog
from starlette.types import Receive, Scope, Send

from gateway.answers import Headers, answer_error, request_id_or
from gateway.auth import authenticate
from gateway.body import ClientGone
from gateway.plane import Gateway
from gateway.protocol import drop_connection
from gateway.routing import Target
from wire.errors import Code, ShoalError
from wire.registry import KeyRecord
from wire.registry import Scope as KeyScope

log = structlog.get_logger(__name__)

UNKNOWN_KEY = KeyRecord(id="", team="", scopes=[])


@dataclass(slots=True)
class Exchange:
    """One request and what is known of it so far.

    ``headers`` go into the answer, also into that of an error. ``started`` says that the head of the answer is out, so
    that an error can no longer become a status. ``target`` and ``tokens`` are for the usage record.
    """

    scope: Scope
    receive: Receive
    send: Send
    request_headers: dict[bytes, bytes]
    request_id: bytes
    headers: Headers
    key: KeyRecord = UNKNOWN_KEY
    target: Target | None = None
    tokens: int = 0
    started: bool = False
    held_bytes: int = 0


class Endpoint(ABC):
    """An ASGI application for one path. Subclasses set ``name``, ``method``, ``scopes`` and write ``handle``."""

    name = ""
    method = "GET"
    scopes: tuple[KeyScope, ...] = (KeyScope.INFER,)

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        requests = gateway.metrics.requests
        self._counted = {code: requests.labels(self.name, code) for code in ("ok", *Code)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        request_headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = request_id_or(request_headers.get(b"x-request-id"), os.urandom(16).hex().encode())
        exchange = Exchange(scope, receive, send, request_headers, request_id, [(b"x-request-id", request_id)])
        code: Code | None = None
        try:
            await self._admit(exchange)
        except ClientGone:
            code = Code.CLIENT_CLOSED
            drop_connection(scope)
        except ShoalError as error:
            code = error.code
            await self._refuse(exchange, error)
        except Exception:
            code = Code.INTERNAL
            log.exception("request failed", endpoint=self.name, request=request_id.decode())
            await self._refuse(exchange, _internal(request_id))
        seconds = time.perf_counter() - began
        self._counted[code or "ok"].inc()
        self.gateway.metrics.seconds.observe(seconds)
        if exchange.target is not None:
            self.gateway.usage.count(exchange.key, exchange.target, code, seconds, exchange.tokens)

    @abstractmethod
    async def handle(self, exchange: Exchange) -> None:
        """Answer an admitted request."""

    async def refuse_late(self, exchange: Exchange, error: ShoalError) -> None:
        """Tell of an error after the head of the answer is out: without a stream, by cutting the answer off."""
        drop_connection(exchange.scope)

    async def _refuse(self, exchange: Exchange, error: ShoalError) -> None:
        # Who left, or reads nothing, misses the reason; the first cause is the one to count.
        try:
            if exchange.started:
                await self.refuse_late(exchange, error)
            else:
                await answer_error(exchange.send, error, exchange.headers)
        except ClientGone:
            drop_connection(exchange.scope)

    async def _admit(self, exchange: Exchange) -> None:
        scope = exchange.scope
        if scope["method"] != self.method:
            raise ShoalError(
                Code.METHOD_NOT_ALLOWED, f"{scope['path']} takes {self.method}, not {scope['method'][:20]}."
            )
        gateway = self.gateway
        keys = gateway.plane().keys.records
        authorization = exchange.request_headers.get(b"authorization")
        key = exchange.key = authenticate(authorization, keys, now=time.time(), scopes=self.scopes)
        gateway.usage.note_key(key)
        limits = gateway.limits
        limits.enter(key, time.monotonic())
        try:
            await self.handle(exchange)
        finally:
            limits.leave(key, exchange.held_bytes)


def _internal(request_id: bytes) -> ShoalError:
    return ShoalError(
        Code.INTERNAL,
        "The gateway failed on this request.",
        hint=f"Its log has the reason under request id {request_id.decode()}.",
    )
