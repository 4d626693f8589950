"""The ASGI application: every path that exists, and a helpful 404 for those that do not."""

from __future__ import annotations

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.answers import encoder, error_body
from gateway.embeddings import Embeddings
from gateway.listing import Models
from gateway.plane import Gateway
from wire.errors import Code, ErrorInfo

PATHS = "POST /v1/embeddings, GET /v1/models, GET /v1/models/{id}, GET /healthz, GET /readyz, GET /metrics"


class Health(msgspec.Struct, frozen=True):
    """Answer of the health paths; ``reasons`` says what is missing."""

    status: str
    reasons: list[str] = []


def build_app(gateway: Gateway) -> Starlette:
    """The application that serves ``gateway``."""

    async def healthz(_: Request) -> Response:
        return _json(Health("ok"), 200)

    async def readyz(_: Request) -> Response:
        reasons = gateway.missing()
        return _json(Health("not ready", reasons), 503) if reasons else _json(Health("ready"), 200)

    async def metrics(_: Request) -> Response:
        gateway.observe()
        return Response(gateway.metrics.render(), headers={"content-type": CONTENT_TYPE_LATEST})

    models = Models(gateway)
    return Starlette(
        routes=[
            Route("/v1/embeddings", Embeddings(gateway), name="embeddings"),
            Route("/v1/models", models, name="models"),
            Route("/v1/models/{model:path}", models, name="model"),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
        ],
        exception_handlers={HTTPException: _not_found},
    )


async def _not_found(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    path = request.url.path[:200]
    if status == 405:
        info = ErrorInfo(Code.METHOD_NOT_ALLOWED, f"{path} does not take {request.method}.", hint=f"There is: {PATHS}.")
    else:
        info = ErrorInfo(Code.NOT_FOUND, f"There is no {path} here.", hint=f"There is: {PATHS}.")
    return Response(error_body(info), info.status, media_type="application/json")


def _json(value: Health, status: int) -> Response:
    return Response(encoder.encode(value), status, media_type="application/json")
