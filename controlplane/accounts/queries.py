"""Typed rows of the keys page, and what a person may hand on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from controlplane.accounts.models import ApiKey, Team
from controlplane.accounts.principal import Principal, allows
from wire.errors import Code, ShoalError
from wire.registry import Scope


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One key of the list; ``state`` is active, expired or revoked."""

    id: int
    name: str
    team: str
    prefix: str
    scopes: list[str]
    state: str
    created_at: datetime
    created_by: str
    last_used_at: datetime | None
    expires_at: datetime | None
    revocable: bool
    changeable: bool
    max_in_flight: int | None
    requests_per_minute: int | None


def list_keys(principal: Principal) -> list[KeyRow]:
    """Keys of the principal's teams: usable ones first, then newest first."""
    keys = ApiKey.objects.filter(team_id__in=principal.team_ids).select_related("team", "created_by")
    rows = [_row(key, principal) for key in keys.order_by("-created_at", "-id")[:500]]
    return sorted(rows, key=lambda row: row.state != "active")


def get_key_to_revoke(principal: Principal, key_id: int) -> ApiKey:
    """A key that the principal may revoke. Raises ``ShoalError(NOT_FOUND | FORBIDDEN)``."""
    key = ApiKey.objects.select_related("team", "created_by").filter(pk=key_id, team_id__in=principal.team_ids).first()
    if key is None:
        raise ShoalError(Code.NOT_FOUND, f"There is no API key {key_id} for you.")
    if not _may_revoke(key, principal):
        raise ShoalError(
            Code.FORBIDDEN, f"The key {key.name} was made by someone else; an owner of {key.team} can revoke it."
        )
    return key


def teams_to_issue(principal: Principal) -> dict[str, frozenset[Scope]]:
    """The principal's teams by name, in order, with the scopes that they may give to keys there."""
    teams = Team.objects.filter(pk__in=principal.team_ids).order_by("name")
    return {team.name: principal.grantable(team.pk) for team in teams}


def teams_for_upload(principal: Principal) -> list[str]:
    """Names of the teams the principal may upload to."""
    allowed = [team for team, held in principal.grants.items() if allows(held, Scope.PUSH)]
    return list(Team.objects.filter(pk__in=allowed).order_by("name").values_list("name", flat=True))


def _row(key: ApiKey, principal: Principal) -> KeyRow:
    return KeyRow(
        id=key.pk,
        name=key.name,
        team=key.team.name,
        prefix=key.prefix,
        scopes=list(key.scopes),
        state=_state(key),
        created_at=key.created_at,
        created_by=key.created_by.get_username() if key.created_by else "",
        last_used_at=key.last_used_at,
        expires_at=key.expires_at,
        revocable=key.revoked_at is None and _may_revoke(key, principal),
        changeable=key.revoked_at is None and allows(principal.grants[key.team_id], Scope.ADMIN),
        max_in_flight=key.max_in_flight,
        requests_per_minute=key.requests_per_minute,
    )


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "expired" if key.expires_at is not None and key.expires_at <= timezone.now() else "active"


def _may_revoke(key: ApiKey, principal: Principal) -> bool:
    held = principal.grants[key.team_id]
    own = principal.user is not None and key.created_by_id == principal.user.pk
    return allows(held, Scope.ADMIN) or own
