"""Verbs of the event feed and the outbox. Call them inside the transaction of the change they tell of."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User

from controlplane.accounts.models import Team
from controlplane.dispatch import dispatch_on_commit
from controlplane.events.models import Event, Outbox
from controlplane.events.publishing import publish_event


def record_event(
    *,
    kind: str,
    subject: str,
    message: str,
    team: Team | None = None,
    actor: User | None = None,
    data: dict[str, Any] | None = None,
) -> Event:
    """One row of the feed. ``subject`` is what it happened to: ``team/adapter@3``, ``key shoal_abc``, a worker."""
    event = Event.objects.create(
        kind=kind, subject=subject[:200], message=message[:500], team=team, actor=actor, data=data or {}
    )
    publish_event(team.pk if team is not None else None, kind)
    return event


def enqueue_outbox(*, bucket: str, key: str) -> None:
    """Have the KV entry ``key`` of ``bucket`` rewritten after commit. ``key`` is the name, not the encoded token.

    The row is written with the caller's transaction; a broker that is away costs nothing but time, since the drain
    also runs every few seconds.
    """
    from controlplane.events.tasks import drain_outbox

    Outbox.objects.create(bucket=bucket, key=key)
    dispatch_on_commit(drain_outbox)
