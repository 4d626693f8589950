"""Who looks at the fleet, whose names they may see, and who may operate workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.accounts.models import Team
from controlplane.accounts.principal import Principal, principal_of_key, principal_of_user
from controlplane.accounts.services import find_usable_key
from controlplane.accounts.sessions import session_user
from wire.registry import Scope


@dataclass(frozen=True, slots=True)
class Viewer:
    """Team names whose versions have names for this viewer, and whether drain and resume are theirs to ask for."""

    teams: frozenset[str]
    operator: bool


def viewer_of(principal: Principal) -> Viewer:
    """The viewer that ``principal`` is."""
    names = Team.objects.filter(pk__in=principal.team_ids).values_list("name", flat=True)
    return Viewer(frozenset(names), principal.operator)


def find_socket_viewer(scope: Mapping[str, Any]) -> Viewer | None:
    """The viewer behind a socket: its API key where one is sent, else its session. ``None`` for nobody."""
    header = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
    kind, _, secret = header.partition(" ")
    if kind.lower() == "bearer":
        key = find_usable_key(secret.strip())
        principal = None if key is None else principal_of_key(key)
        return viewer_of(principal) if principal is not None and principal.may(Scope.READ) else None
    user = session_user(scope)
    return None if user is None else viewer_of(principal_of_user(user))
