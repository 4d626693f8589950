"""The ASGI application: every path that exists, and a helpful 404 for those that do not."""

from __future__ import annotations

import secrets

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.answers import encoder, error_body
from gateway.endpoints.classify import Classify
from gateway.endpoints.embeddings import Embeddings
from gateway.endpoints.generation import Chat, Completions
from gateway.endpoints.models import Models
from gateway.endpoints.rerank import Rerank
from gateway.plane import Gateway
from wire.errors import Code, ErrorInfo

PATHS = (
    "POST /v1/embeddings, POST /v1/rerank, POST /v1/classify, POST /v1/chat/completions, POST /v1/completions, "
    "GET /v1/models, GET /v1/models/{id}, GET /healthz, GET /readyz, GET /metrics"
)
LOOPBACK = frozenset({"127.0.0.1", "::1"})


class Health(msgspec.Struct, frozen=True):
    """Answer of the health paths; ``reasons`` says what is missing."""

    status: str
    reasons: list[str] = []


def build_app(gateway: Gateway) -> ASGIApp:
    """The application that serves ``gateway``."""
    inference = {
        f"/v1/{path}": endpoint(gateway)
        for path, endpoint in (
            ("embeddings", Embeddings),
            ("rerank", Rerank),
            ("classify", Classify),
            ("chat/completions", Chat),
            ("completions", Completions),
        )
    }
    others = _others(gateway)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # Starlette's middleware and router cost a tenth of the gateway's time per request; these need none of it.
        await (inference.get(scope["path"]) or others)(scope, receive, send)

    return app


def _others(gateway: Gateway) -> Starlette:

    async def healthz(_: Request) -> Response:
        return _json(Health("ok"), 200)

    async def readyz(_: Request) -> Response:
        reasons = gateway.missing()
        return _json(Health("not ready", reasons), 503) if reasons else _json(Health("ready"), 200)

    async def metrics(request: Request) -> Response:
        refusal = refuse_metrics(request, gateway.settings.metrics_key)
        if refusal is not None:
            return Response(error_body(refusal), refusal.status, media_type="application/json")
        gateway.observe()
        return Response(gateway.metrics.render(), headers={"content-type": CONTENT_TYPE_LATEST})

    models = Models(gateway)
    return Starlette(
        routes=[
            Route("/v1/models", models, name="models"),
            Route("/v1/models/{model:path}", models, name="model"),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
        ],
        exception_handlers={HTTPException: _not_found},
    )


def refuse_metrics(request: Request, key: SecretStr | None) -> ErrorInfo | None:
    """Why the caller may not read the metrics: they name no team, but tell how much traffic there is."""
    if key is None:
        if request.client is not None and request.client.host in LOOPBACK:
            return None
        return ErrorInfo(
            Code.FORBIDDEN,
            "Metrics are given to this machine only.",
            hint="Set SHOAL_METRICS_KEY on the gateway and send it as a bearer key.",
        )
    given = request.headers.get("authorization", "").partition(" ")[2]
    if secrets.compare_digest(given.encode(), key.get_secret_value().encode()):
        return None
    return ErrorInfo(Code.UNAUTHENTICATED, "Metrics need the bearer key of the setting SHOAL_METRICS_KEY.")


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
