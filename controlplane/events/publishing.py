"""Tells the feeds of a team that something happened: a hint, after which a page asks for itself."""

from __future__ import annotations

import structlog
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction
from redis.exceptions import RedisError

log = structlog.get_logger("controlplane.events")

OPERATORS = "events.operators"


def team_group(team_id: int) -> str:
    """Channels group of a team's feed."""
    return f"events.team.{team_id}"


def publish_event(team_id: int | None, kind: str) -> None:
    """Send the hint after commit; a feed without it shows the event at its next load."""
    group = OPERATORS if team_id is None else team_group(team_id)
    transaction.on_commit(lambda: _send(group, kind), robust=True)


def _send(group: str, kind: str) -> None:
    layer = get_channel_layer()
    if layer is None:
        return
    try:
        async_to_sync(layer.group_send)(group, {"type": "event.recorded", "kind": kind})
    except (RedisError, OSError) as error:
        log.warning("event not told live", group=group, error=str(error)[:200])
