"""What every authenticated endpoint does around its own work: request id, key, limits, metrics, errors."""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping

import structlog
from starlette.types import Receive, Scope, Send

from gateway.answers import Headers, answer_error, request_id_or
from gateway.auth import authenticate
from gateway.body import ClientGone
from gateway.plane import Gateway
from wire.errors import Code, ShoalError
from wire.registry import KeyRecord
from wire.registry import Scope as KeyScope

log = structlog.get_logger(__name__)


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
        started = time.perf_counter()
        request_headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = request_id_or(request_headers.get(b"x-request-id"), uuid.uuid4().hex.encode())
        headers: Headers = [(b"x-request-id", request_id)]
        code: str
        try:
            await self._admit(scope, receive, send, request_headers, headers)
            code = "ok"
        except ClientGone:
            code = Code.CLIENT_CLOSED
        except ShoalError as error:
            code = error.code
            await answer_error(send, error, headers)
        except Exception:
            code = Code.INTERNAL
            log.exception("request failed", endpoint=self.name, request=request_id.decode())
            await answer_error(send, _internal(request_id), headers)
        self._counted[code].inc()
        self.gateway.metrics.seconds.observe(time.perf_counter() - started)

    @abstractmethod
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
        """Answer an admitted request. ``headers`` go into the answer, also into that of an error raised here."""

    async def _admit(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        request_headers: Mapping[bytes, bytes],
        headers: Headers,
    ) -> None:
        if scope["method"] != self.method:
            raise ShoalError(
                Code.METHOD_NOT_ALLOWED, f"{scope['path']} takes {self.method}, not {scope['method'][:20]}."
            )
        keys = self.gateway.plane().keys.records
        key = authenticate(request_headers.get(b"authorization"), keys, now=time.time(), scopes=self.scopes)
        limits = self.gateway.limits
        limits.enter(key, time.monotonic())
        try:
            await self.handle(scope, receive, send, key=key, request_headers=request_headers, headers=headers)
        finally:
            limits.leave(key)


def _internal(request_id: bytes) -> ShoalError:
    return ShoalError(
        Code.INTERNAL,
        "The gateway failed on this request.",
        hint=f"Its log has the reason under request id {request_id.decode()}.",
    )
