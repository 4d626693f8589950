"""Verbs of teams and API keys."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from controlplane.accounts.models import ApiKey, Membership, Team
from controlplane.accounts.principal import principal_of_user
from controlplane.events.services import enqueue_outbox, record_event
from wire.errors import Code, ShoalError
from wire.names import NAME_RULE, valid_part
from wire.registry import Scope
from wire.subjects import KEYS_BUCKET

SECRET_PREFIX = "shoal_"  # noqa: S105  (the public start of every key)
SECRET_BYTES = 32
SHOWN_CHARACTERS = 12
USE_NOTED_EVERY_S = 60


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What the gateway allows a key at once and a minute; ``None`` is no limit."""

    max_in_flight: int | None = None
    requests_per_minute: int | None = None

    def __str__(self) -> str:
        return f"{self.max_in_flight or 'any number'} in flight, {self.requests_per_minute or 'any number'} a minute"


UNLIMITED = KeyLimits()


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A new key; ``secret`` is known here and never again."""

    key: ApiKey
    secret: str


def create_team_for(*, user: User, name: str = "") -> Team:
    """The user's own team, made with them as owner unless they belong to one already (then that one is returned).

    Without ``name`` it is made from the user name, with a number added when it is taken. Raises
    ``ShoalError(INVALID_NAME | CONFLICT)`` for a given name that is not allowed or taken.
    """
    existing = Membership.objects.filter(user=user).select_related("team").order_by("id").first()
    if existing is not None:
        return existing.team
    if name and not valid_part(name):
        raise ShoalError(Code.INVALID_NAME, f"{name[:80]!r} is no team name: {NAME_RULE}.", param="name")
    wanted = name or _name_from(user.get_username())
    for number in range(1, 1000):
        candidate = wanted if number == 1 else f"{wanted[:58]}-{number}"
        try:
            with transaction.atomic():
                team = Team.objects.create(name=candidate)
                Membership.objects.create(team=team, user=user, role=Membership.Role.OWNER)
                record_event(
                    kind="team.created", subject=candidate, message=f"Team {candidate} created", team=team, actor=user
                )
        except IntegrityError:
            if name:
                raise ShoalError(Code.CONFLICT, f"The team {name} exists already.", param="name") from None
            continue
        return team
    raise ShoalError(Code.CONFLICT, f"No free team name like {wanted!r} was found.", param="name")


def issue_api_key(
    *,
    team: Team,
    name: str,
    scopes: list[Scope],
    actor: User | None = None,
    expires_at: datetime | None = None,
    granted: frozenset[Scope] | None = None,
    limits: KeyLimits = UNLIMITED,
) -> IssuedKey:
    """A new API key of ``team``; its secret is returned once.

    ``granted`` is what the asking principal may hand on (``Principal.grantable``); without it the actor's role decides,
    and without an actor the caller is a command of the system. Raises ``ShoalError``: INVALID_REQUEST without scopes,
    FORBIDDEN.
    """
    if not scopes:
        raise ShoalError(Code.INVALID_REQUEST, "A key needs at least one scope.", param="scopes")
    if granted is None and actor is not None:
        granted = principal_of_user(actor).grantable(team.pk)
    excess = [] if granted is None else [scope for scope in scopes if scope not in granted]
    if excess:
        raise ShoalError(
            Code.FORBIDDEN, f"You cannot give the scope {', '.join(excess)} in team {team.name}.", param="scopes"
        )
    secret = SECRET_PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    with transaction.atomic():
        key = ApiKey.objects.create(
            team=team,
            created_by=actor,
            name=name[:100],
            prefix=secret[:SHOWN_CHARACTERS],
            sha256=hash_secret(secret),
            scopes=sorted({scope.value for scope in scopes}),
            expires_at=expires_at,
            max_in_flight=limits.max_in_flight,
            requests_per_minute=limits.requests_per_minute,
        )
        record_event(
            kind="key.issued",
            subject=f"key {key.prefix}",
            message=f"API key {key.name} issued with {', '.join(key.scopes)}",
            team=team,
            actor=actor,
        )
        enqueue_outbox(bucket=KEYS_BUCKET, key=key.sha256)
    return IssuedKey(key, secret)


def change_api_key(
    *, key: ApiKey, name: str, expires_at: datetime | None, limits: KeyLimits, actor: User | None = None
) -> bool:
    """Give ``key`` another name, end or limits; ``False`` when it is revoked. Its scopes never change."""
    values = {
        "name": name[:100],
        "expires_at": expires_at,
        "max_in_flight": limits.max_in_flight,
        "requests_per_minute": limits.requests_per_minute,
    }
    with transaction.atomic():
        changed = ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(**values)
        if changed:
            for field, value in values.items():
                setattr(key, field, value)
            record_event(
                kind="key.changed",
                subject=f"key {key.prefix}",
                message=f"API key {key.name} changed: {limits}",
                team=key.team,
                actor=actor,
            )
            enqueue_outbox(bucket=KEYS_BUCKET, key=key.sha256)
    return bool(changed)


def revoke_api_key(*, key: ApiKey, actor: User | None = None) -> bool:
    """Revoke ``key``; ``False`` when it was revoked already."""
    with transaction.atomic():
        changed = ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now())
        if changed:
            record_event(
                kind="key.revoked",
                subject=f"key {key.prefix}",
                message=f"API key {key.name} revoked",
                team=key.team,
                actor=actor,
            )
            enqueue_outbox(bucket=KEYS_BUCKET, key=key.sha256)
    return bool(changed)


def find_usable_key(secret: str) -> ApiKey | None:
    """The key with this secret, unless it is revoked or expired."""
    if not secret.startswith(SECRET_PREFIX):
        return None
    return ApiKey.objects.usable().select_related("team", "created_by").filter(sha256=hash_secret(secret)).first()


def note_key_use(key: ApiKey) -> None:
    """Remember that ``key`` was used, at most once a minute: a write for each request would be a hot row."""
    now = timezone.now()
    stale = now - timedelta(seconds=USE_NOTED_EVERY_S)
    if key.last_used_at is not None and key.last_used_at > stale:
        return
    ApiKey.objects.filter(Q(last_used_at=None) | Q(last_used_at__lte=stale), pk=key.pk).update(last_used_at=now)


def note_keys_used(prefixes: Collection[str]) -> int:
    """The same for keys that gateways name by their public start; how many rows changed."""
    now = timezone.now()
    unnoted = Q(last_used_at=None) | Q(last_used_at__lte=now - timedelta(seconds=USE_NOTED_EVERY_S))
    return ApiKey.objects.filter(unnoted, prefix__in=list(prefixes)).update(last_used_at=now)


def hash_secret(secret: str) -> str:
    """SHA-256 (hex) of a key's secret. The secret has 256 random bits, so that no slow hash is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _name_from(username: str) -> str:
    cleaned = re.sub(r"[^a-z0-9._-]+", "-", username.lower()).strip("._-")[:60]
    return cleaned or "team"
