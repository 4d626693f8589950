"""Request ids: taken from ``x-request-id`` or made, bound to every log line, sent back."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponseBase

log = structlog.get_logger("controlplane.request")
_ACCEPTED = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")
_QUIET = ("/healthz", "/readyz", "/static/")


class RequestIdMiddleware:
    """Gives each request an id and logs one line when it was answered."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.is_async:
            return self._answer_async(request)
        started = self._start(request)
        response: HttpResponseBase = self.get_response(request)
        return self._finish(request, response, started)

    async def _answer_async(self, request: HttpRequest) -> HttpResponseBase:
        started = self._start(request)
        response: HttpResponseBase = await self.get_response(request)
        return self._finish(request, response, started)

    def _start(self, request: HttpRequest) -> float:
        offered = request.headers.get("x-request-id", "")
        request_id = offered if _ACCEPTED.match(offered) else secrets.token_hex(8)
        request.META["SHOAL_REQUEST_ID"] = request_id
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id)
        return time.monotonic()

    def _finish(self, request: HttpRequest, response: HttpResponseBase, started: float) -> HttpResponseBase:
        response.headers["x-request-id"] = request.META["SHOAL_REQUEST_ID"]
        if not request.path.startswith(_QUIET):
            log.info(
                "answered",
                method=request.method,
                path=request.path,
                status=response.status_code,
                ms=round((time.monotonic() - started) * 1000, 1),
            )
        return response
