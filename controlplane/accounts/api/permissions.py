"""Scopes: each view names the scope of each method, and a method without one is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rest_framework.exceptions import NotAuthenticated
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from controlplane.accounts.models import ApiKey
from controlplane.accounts.principal import Principal, principal_of_key, principal_of_user
from wire.errors import Code, ShoalError
from wire.registry import Scope

if TYPE_CHECKING:  # REST framework imports this module while its own views are being loaded
    from rest_framework.views import APIView


def principal_of(request: Request) -> Principal:
    """The principal of a REST request, looked up once."""
    http = request._request
    found: Principal | None = getattr(http, "shoal_principal", None)
    if found is None:
        found = principal_of_key(request.auth) if isinstance(request.auth, ApiKey) else principal_of_user(request.user)
        http.shoal_principal = found  # type: ignore[attr-defined]
    return found


class HasScope(BasePermission):
    """Reads ``scopes: dict[method, Scope | None]`` of the view (``None``: whoever is known).

    Which team a scope is held in is judged by ``Principal.team``.
    """

    def has_permission(self, request: Request, view: APIView) -> bool:
        scopes: dict[str, Scope | None] = getattr(view, "scopes", {})
        method = "GET" if request.method in {"HEAD", "OPTIONS"} else str(request.method)
        if method not in scopes:
            # a method that the view lacks is answered 405 by it; one without a declared scope is refused
            return str(request.method) not in _allowed(view)
        principal = principal_of(request)
        if principal.user is None and principal.key is None:
            raise NotAuthenticated("This needs an API key or a signed-in person.")
        wanted = scopes[method]
        if wanted is not None and not principal.may(wanted):
            raise ShoalError(
                Code.FORBIDDEN,
                f"This needs the scope `{wanted}`.",
                hint="Make a key with this scope on the page /keys/.",
            )
        return True


def _allowed(view: Any) -> list[str]:
    return list(view.allowed_methods)
