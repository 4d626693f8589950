"""The one way a version changes its state: compare-and-swap, with the event in the same transaction."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from controlplane.events.services import record_event
from loras.live import publish_version
from loras.models import Adapter, Version
from loras.states import TABLE, State


def move_version(
    *,
    version: Version,
    to: State,
    message: str,
    actor: User | None = None,
    claimed_at: datetime | None = None,
    values: dict[str, Any] | None = None,
) -> bool:
    """Move ``version`` from the state its object shows to ``to``; ``False`` when the row is not in that state any more.

    ``claimed_at`` additionally asks that this very claim still holds the row. ``values`` are other columns to set
    with the change. Only the caller that changed the row gets ``True``, an event is written, pages are told on
    commit, and the object shows the new values. Raises ``ValueError`` for a transition that the table lacks.
    """
    old = State(version.state)
    if to not in TABLE[old].to:
        raise ValueError(f"{version}: {old} leads to {sorted(TABLE[old].to)}, not to {to}")
    changes = {"state": to.value, "state_since": timezone.now(), "claimed_at": None, **(values or {})}
    with transaction.atomic():
        rows = Version.objects.filter(pk=version.pk, state=old.value)
        if claimed_at is not None:
            rows = rows.filter(claimed_at=claimed_at)
        if not rows.update(**changes):
            return False
        for name, value in changes.items():
            setattr(version, name, value)
        record_event(
            kind=f"version.{to.value}",
            subject=str(version),
            message=message,
            team=version.adapter.team,
            actor=actor,
            data={"from": old.value, "to": to.value, "adapter": version.adapter.full_name, "number": version.number},
        )
        publish_version(version.pk)
    return True


def lock_adapter(adapter_id: int) -> Adapter:
    """The adapter's row, locked until the transaction ends: numbers, aliases and duplicates are decided under it.

    SQLite knows no row locks; its IMMEDIATE transactions hold the only write lock instead.
    """
    # a validation may end after its adapter was deleted: it is decided all the same, and may be restored with it
    rows = Adapter.everything.select_for_update(of=("self",)).select_related("team", "base_model")
    return rows.get(pk=adapter_id)
