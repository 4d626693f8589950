"""Hands ids to Celery after commit. Redis may be away: the database's states are the truth and beat looks again."""

from __future__ import annotations

import time
from typing import Any

import structlog
from celery import Task
from django.db import transaction
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

log = structlog.get_logger("controlplane.dispatch")

# after a failure nothing is tried for this long, so that no request waits for a broker that is known to be away
PAUSE_S = 5.0


class _Pause:
    until = 0.0


def dispatch_on_commit(task: Task[Any, Any], *ids: int) -> None:
    """Queue ``task`` with ``ids`` once the transaction is committed; never raises into the request."""
    transaction.on_commit(lambda: dispatch_now(task, *ids), robust=True)


def dispatch_now(task: Task[Any, Any], *ids: int) -> bool:
    """Queue ``task`` at once; ``False`` when the broker does not take it."""
    if time.monotonic() < _Pause.until:
        return False
    try:
        task.apply_async(args=ids)
    except (KombuError, RedisError, OSError) as error:
        _Pause.until = time.monotonic() + PAUSE_S
        log.warning("broker away: the next sweep picks this up", task=task.name, ids=ids, error=str(error)[:200])
        return False
    return True
