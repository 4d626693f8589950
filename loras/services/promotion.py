"""What an evaluation decided about an alias."""

from __future__ import annotations

from django.contrib.auth.models import User

from loras.models import Alias, Version
from loras.services.aliases import Split, has_effect, move_alias
from wire.errors import ShoalError
from wire.names import LIVE


def promote_measured(*, version: Version, measured_against: str | None, reason: str, actor: User | None) -> str:
    """Make ``version`` live if ``live`` still answers with what it was measured against (a version's name, ``None``
    for nothing); the reason in words, also when that is no more the case."""
    alias = Alias.objects.filter(adapter=version.adapter, name=LIVE).first()
    split = {int(number): weight for number, weight in alias.split.items()} if alias else {}
    if set(split) == {version.number}:
        return f"{reason} It is live already."
    if not has_effect(version):
        return "Not promoted: it has no effect, its output equals the base model's."
    heaviest = max(split, key=lambda number: (split[number], number)) if split else None
    known = None if heaviest is None else f"{version.adapter.full_name}@{heaviest}"
    if known != measured_against:
        return f"Not promoted: live moved to {known} while it was measured against {measured_against or 'nothing'}."
    expect: Split | None = split or None
    try:
        move_alias(adapter=version.adapter, alias=LIVE, split={version.number: 100}, expect=expect, actor=actor)
    except ShoalError as error:
        return f"Not promoted: {error.info.message}"
    return reason
