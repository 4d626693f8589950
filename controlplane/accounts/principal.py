"""Who asks: a person with memberships or an API key of one team, and what they may do in which team."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User

from controlplane.accounts.models import ApiKey, Membership, Team
from wire.errors import Code, ShoalError
from wire.registry import Scope

ROLE_SCOPES: dict[str, frozenset[Scope]] = {
    Membership.Role.OWNER: frozenset({Scope.READ, Scope.PUSH, Scope.INFER, Scope.ADMIN}),
    Membership.Role.MEMBER: frozenset({Scope.READ, Scope.PUSH, Scope.INFER}),
    Membership.Role.VIEWER: frozenset({Scope.READ, Scope.INFER}),
}


@dataclass(frozen=True, slots=True)
class Principal:
    """``grants`` maps each team's id to the scopes held in it. ``user`` is absent for a key whose maker is gone."""

    user: User | None
    key: ApiKey | None
    grants: dict[int, frozenset[Scope]]

    @property
    def team_ids(self) -> list[int]:
        return list(self.grants)

    @property
    def operator(self) -> bool:
        """Whether what serves every team is theirs to watch and to operate: a staff member, or a staff member's key
        with the scope ``admin``; owning one team is not enough."""
        staff = self.user is not None and self.user.is_active and self.user.is_staff
        return staff and (self.key is None or self.may(Scope.ADMIN))

    def may(self, scope: Scope) -> bool:
        """Whether ``scope`` is held in any team."""
        return any(allows(held, scope) for held in self.grants.values())

    def grantable(self, team_id: int) -> frozenset[Scope]:
        """Scopes that may be handed on to a key of this team: nobody hands on more than they hold. ``machine`` reads
        the artifacts of every team, so that only a superuser in person gives it."""
        held = self.grants.get(team_id, frozenset())
        superuser = self.key is None and self.user is not None and self.user.is_superuser
        return frozenset(
            scope for scope in Scope if allows(held, scope) or (scope is Scope.MACHINE and superuser and held)
        )

    def team(self, name: str, scope: Scope) -> Team:
        """The team called ``name``. Raises ``ShoalError``: NOT_FOUND when it is not one of theirs (another team's
        names do not exist for them), FORBIDDEN when ``scope`` is not held in it."""
        team = Team.objects.filter(name=name, pk__in=self.team_ids).first()
        if team is None:
            raise ShoalError(Code.NOT_FOUND, f"There is no team {name[:80]!r} for you.", hint=self._own_teams())
        if not allows(self.grants[team.pk], scope):
            raise ShoalError(Code.FORBIDDEN, f"This needs the scope `{scope}` in team {team.name}.")
        return team

    def _own_teams(self) -> str:
        names = Team.objects.filter(pk__in=self.team_ids).values_list("name", flat=True)[:10]
        return "Your teams: " + ", ".join(names) + "." if names else "You belong to no team yet."


def allows(held: frozenset[Scope], scope: Scope) -> bool:
    """Whether ``held`` contains ``scope``; ``admin`` implies all but ``machine``."""
    return scope in held or (scope is not Scope.MACHINE and Scope.ADMIN in held)


def principal_of_user(user: AbstractBaseUser | AnonymousUser) -> Principal:
    """The principal of a signed-in person; nobody has no grants."""
    if not isinstance(user, User):
        return Principal(user=None, key=None, grants={})
    rows = Membership.objects.filter(user=user).values_list("team_id", "role")
    return Principal(user=user, key=None, grants={team: ROLE_SCOPES[role] for team, role in rows})


def principal_of_key(key: ApiKey) -> Principal:
    """The principal of an API key."""
    scopes = frozenset(Scope(value) for value in key.scopes)
    return Principal(user=key.created_by, key=key, grants={key.team_id: scopes})
