"""Holding a canary without a person, and a person's word to go on with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from controlplane.events.services import record_event
from loras.models import Adapter, Alias, AliasHold
from loras.services.aliases import describe_split, move_alias
from loras.services.transitions import lock_adapter
from wire.errors import Code, ShoalError


def hold_canary(*, alias: Alias, number: int, reason: str, figures: Mapping[str, Any]) -> AliasHold | None:
    """Take version ``number`` out of the split that ``alias`` shows; its weight goes to the others.

    ``None`` when the alias was moved meanwhile: the figures were of another split, so nothing is decided on them.
    """
    before = {int(key): int(weight) for key, weight in alias.split.items()}
    after = {key: weight for key, weight in before.items() if key != number}
    with transaction.atomic():
        adapter = lock_adapter(alias.adapter_id)
        current = Alias.objects.filter(pk=alias.pk).first()
        if not after or current is None or current.split != alias.split or current.moved_at != alias.moved_at:
            return None
        moved = move_alias(adapter=adapter, alias=alias.name, split=after, expect=before, confirm=True)
        hold = AliasHold.objects.create(
            adapter=adapter,
            alias=alias.name,
            number=number,
            reason=reason[:500],
            figures=dict(figures),
            split_before=alias.split,
            split_after=moved.split,
        )
        record_event(
            kind="canary.held",
            subject=f"{adapter.full_name}@{number}",
            message=f"{adapter.full_name}@{number} held on the alias {alias.name}: {reason}",
            team=adapter.team,
            data={"adapter": adapter.full_name, "alias": alias.name, "number": number, "figures": dict(figures)},
        )
    return hold


def resume_canary(*, adapter: Adapter, alias: str, actor: User | None = None) -> Alias:
    """Put the split of before the newest hold back. It is judged anew, by requests from now on.

    Raises ``ShoalError(CONFLICT)`` when nothing is held, or the alias was moved since.
    """
    with transaction.atomic():
        adapter = lock_adapter(adapter.pk)
        hold = open_hold(adapter, alias)
        if hold is None:
            raise ShoalError(
                Code.CONFLICT,
                f"No canary of {adapter.full_name}:{alias[:80]} is held.",
                hint="It was resumed, or the alias was moved since. Move the alias to the split you want.",
            )
        AliasHold.objects.filter(pk=hold.pk).update(resumed_at=timezone.now(), resumed_by=actor)
        split = {int(key): int(weight) for key, weight in hold.split_before.items()}
        record_event(
            kind="canary.resumed",
            subject=f"{adapter.full_name}@{hold.number}",
            message=f"{adapter.full_name}@{hold.number} resumed on the alias {alias}: {describe_split(split)}",
            team=adapter.team,
            actor=actor,
            data={"adapter": adapter.full_name, "alias": alias, "number": hold.number},
        )
        return move_alias(adapter=adapter, alias=alias, split=split, actor=actor, confirm=True)


def open_hold(adapter: Adapter, alias: str) -> AliasHold | None:
    """The newest hold of ``alias`` while the alias still points where the hold left it and nobody resumed it."""
    hold = AliasHold.objects.filter(adapter=adapter, alias=alias).order_by("-id").first()
    if hold is None or hold.resumed_at is not None:
        return None
    current = Alias.objects.filter(adapter=adapter, name=alias).first()
    return hold if current is not None and current.split == hold.split_after else None
