"""Verbs of teams and their people. A team always has an owner; who leaves or may less, loses keys that may more."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from controlplane.accounts.models import ApiKey, Membership, Team
from controlplane.accounts.principal import ROLE_SCOPES, allows
from controlplane.accounts.services import revoke_api_key
from controlplane.events.services import record_event
from wire.errors import Code, ShoalError
from wire.names import NAME_RULE, valid_part
from wire.registry import Scope

MAX_TEAMS_OWNED = 50


def create_team(*, name: str, actor: User) -> Team:
    """A new team with ``actor`` as owner. Raises ``ShoalError``: INVALID_NAME, CONFLICT (taken, or too many)."""
    if not valid_part(name):
        raise ShoalError(Code.INVALID_NAME, f"{name[:80]!r} is no team name: {NAME_RULE}.", param="name")
    if Membership.objects.filter(user=actor, role=Membership.Role.OWNER).count() >= MAX_TEAMS_OWNED:
        raise ShoalError(Code.CONFLICT, f"You own {MAX_TEAMS_OWNED} teams already.", param="name")
    try:
        with transaction.atomic():
            team = Team.objects.create(name=name)
            Membership.objects.create(team=team, user=actor, role=Membership.Role.OWNER)
            record_event(kind="team.created", subject=name, message=f"Team {name} created", team=team, actor=actor)
    except IntegrityError:
        raise ShoalError(Code.CONFLICT, f"The team {name} exists already.", param="name") from None
    return team


def add_member(*, team: Team, username: str, role: str, actor: User | None = None) -> Membership:
    """Give a person a role in ``team``. Raises ``ShoalError``: NOT_FOUND (nobody of that name), CONFLICT (a member)."""
    user = User.objects.filter(username=username, is_active=True).first()
    if user is None:
        raise ShoalError(
            Code.NOT_FOUND,
            f"There is no person {username[:80]!r}.",
            param="user",
            hint="An administrator of this site makes accounts.",
        )
    with transaction.atomic():
        member, created = Membership.objects.get_or_create(team=team, user=user, defaults={"role": _role(role)})
        if not created:
            raise ShoalError(
                Code.CONFLICT,
                f"{username} belongs to {team.name} already, as {member.role}.",
                param="user",
                hint="Change the role instead.",
            )
        _note(team, "member.added", user, f"{username} joined {team.name} as {role}", actor)
    return member


def change_role(*, team: Team, username: str, role: str, actor: User | None = None) -> Membership:
    """Give a member another role; their keys that may more than it are revoked. Raises ``ShoalError``: NOT_FOUND,
    IN_USE for the last owner."""
    with transaction.atomic():
        member = _locked(team, username)
        if member.role == _role(role):
            return member
        _keep_an_owner(team, member)
        before, member.role = member.role, role
        member.save(update_fields=["role"])
        _note(team, "member.changed", member.user, f"{username} is {role} of {team.name}, was {before}", actor)
        _revoke_excess(team, member.user, ROLE_SCOPES[role], actor)
    return member


def remove_member(*, team: Team, username: str, actor: User | None = None) -> None:
    """Take a person out of ``team``, with the keys they made in it. Raises ``ShoalError``: NOT_FOUND, IN_USE for the
    last owner."""
    with transaction.atomic():
        member = _locked(team, username)
        _keep_an_owner(team, member)
        member.delete()
        _note(team, "member.removed", member.user, f"{username} left {team.name}", actor)
        _revoke_excess(team, member.user, frozenset(), actor)


def _locked(team: Team, username: str) -> Membership:
    """The member's row, under the team's lock: of two owners who leave at once one stays."""
    Team.objects.select_for_update().get(pk=team.pk)
    member = Membership.objects.select_related("user").filter(team=team, user__username=username).first()
    if member is None:
        raise ShoalError(Code.NOT_FOUND, f"{username[:80]!r} does not belong to {team.name}.", param="user")
    return member


def _keep_an_owner(team: Team, leaving: Membership) -> None:
    owners = Membership.objects.filter(team=team, role=Membership.Role.OWNER)
    if leaving.role == Membership.Role.OWNER and not owners.exclude(pk=leaving.pk).exists():
        raise ShoalError(
            Code.IN_USE,
            f"{leaving.user} is the last owner of {team.name}.",
            param="role",
            hint="Make somebody else an owner first.",
        )


def _revoke_excess(team: Team, user: User, held: frozenset[Scope], actor: User | None) -> None:
    for key in ApiKey.objects.usable().filter(team=team, created_by=user).select_related("team"):
        if not all(allows(held, Scope(scope)) for scope in key.scopes):
            revoke_api_key(key=key, actor=actor)


def _role(role: str) -> str:
    if role not in Membership.Role.values:
        raise ShoalError(
            Code.INVALID_REQUEST, f"{role[:40]!r} is no role: {', '.join(Membership.Role.values)}.", param="role"
        )
    return role


def _note(team: Team, kind: str, user: User, message: str, actor: User | None) -> None:
    record_event(
        kind=kind, subject=f"person {user.get_username()}", message=message, team=team, actor=actor,
        data={"user": user.get_username()},
    )  # fmt: skip
