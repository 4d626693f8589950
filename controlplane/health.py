"""``/healthz``: the process answers. ``/readyz``: what it needs answers too."""

from __future__ import annotations

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse


def healthz(request: HttpRequest) -> JsonResponse:
    """200 while the process serves."""
    return JsonResponse({"status": "ok"})


def readyz(request: HttpRequest) -> JsonResponse:
    """200 when the database is migrated and Redis answers, else 503; each part is named with its state."""
    parts = {"database": _database(), "redis": _redis()}
    ready = all(state == "ok" for state in parts.values())
    return JsonResponse({"status": "ready" if ready else "not_ready", "parts": parts}, status=200 if ready else 503)


def _database() -> str:
    try:
        executor = MigrationExecutor(connection)
        pending = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError as error:
        return f"no answer: {type(error).__name__}"
    return f"{len(pending)} migrations pending: run manage.py migrate" if pending else "ok"


def _redis() -> str:
    try:
        client = redis.Redis.from_url(settings.SHOAL.redis_url, socket_connect_timeout=1, socket_timeout=1)
        with client:
            client.ping()
    except redis.RedisError as error:
        return f"no answer at {settings.SHOAL.redis_url.rpartition('@')[2]}: {type(error).__name__}"
    return "ok"
