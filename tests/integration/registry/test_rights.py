"""Who may do what: every REST address and method for every role, for keys of one scope, and for strangers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from controlplane.accounts.models import Membership
from controlplane.accounts.principal import ROLE_SCOPES, allows
from controlplane.accounts.services import create_team_for, issue_api_key
from loras.services import delete_adapter
from tests.integration.registry.shop import Shop
from wire.registry import Scope

VALUES = {
    "team": "acme", "name": "search", "number": "1", "alias": "live", "sha256": "0" * 64, "key": "box.cpu",
    "key_id": "1", "upload_id": "0" * 32, "sequence": "1", "username": "ada",
}  # fmt: skip
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")
# addresses outside a team: what they show is filtered, and who is known may ask
OPEN_TO_STRANGERS = frozenset({
    "adapters/", "deleted-adapters/", "base-models/", "pools/", "workers/", "events/", "dead-jobs/", "keys/", "me/",
    "teams/", "uploads/", "quotas/", "uploads/known/",
})  # fmt: skip


def for_operators(address: str, method: str) -> bool:
    """Whether it acts on what serves every team."""
    return method == "POST" and address.startswith(("workers/", "dead-jobs/"))


def routes() -> Iterator[tuple[str, str, Scope | None]]:
    """(address below /api/v1/, method, scope) of every method that a view declares."""

    def walk(patterns: list[Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for entry in patterns:
            address = prefix + str(entry.pattern)
            if isinstance(entry, URLResolver):
                yield from walk(entry.url_patterns, address)
            elif isinstance(entry, URLPattern) and address.startswith("api/v1/"):
                yield address.removeprefix("api/v1/"), getattr(entry.callback, "view_class", None)

    for address, view in walk(get_resolver().url_patterns, ""):
        assert view is not None, address
        for method, scope in view.scopes.items():
            if hasattr(view, method.lower()):
                yield address, method, scope


ROUTES = sorted(set(routes()), key=str)


def filled(address: str) -> str:
    """``address`` with names of the team acme."""
    for name, value in VALUES.items():
        for kind in ("str", "int"):
            address = address.replace(f"<{kind}:{name}>", value)
    assert "<" not in address, address
    return f"/api/v1/{address}"


def ask(client: Client, address: str, method: str, **more: Any) -> int:
    """The status; tus asks for its version with each request."""
    data = "" if method in {"GET", "HEAD", "DELETE"} else "{}"
    headers = {"tus-resumable": "1.0.0"} | more
    found = client.generic(method, filled(address), data, "application/json", headers=headers)
    return int(found.status_code)


def of_team(address: str) -> bool:
    """Whether the address names something of one team."""
    return address.startswith(("adapters/<", "teams/<"))


@pytest.fixture
def acme(shop: Shop) -> Shop:
    """With a ready version, a member and a viewer."""
    shop.ready()
    shop.member("max", Membership.Role.MEMBER)
    shop.member("vera", Membership.Role.VIEWER)
    return shop


def signed_in(user: User) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(user)
    return client


def test_every_address_declares_its_scopes() -> None:
    assert len(ROUTES) > 40
    for address, method, scope in ROUTES:
        assert method in METHODS, (address, method)
        assert scope is None or isinstance(scope, Scope), (address, method)


def test_nobody_gets_401(acme: Shop) -> None:
    client = Client(raise_request_exception=False)
    wrong = [(a, m) for a, m, _ in ROUTES if (status := ask(client, a, m)) != 401 and (a, m, status)]
    assert wrong == []


def test_strangers_see_nothing_of_a_team(acme: Shop) -> None:
    eve = User.objects.create_user("eve")
    create_team_for(user=eve, name="rivals")
    client = signed_in(eve)
    wrong = []
    for address, method, _ in ROUTES:
        status = ask(client, address, method)
        if of_team(address):
            expected = {404}
        elif address in OPEN_TO_STRANGERS:
            # their own lists, or a body that says too little
            expected = {200, 400, 412, 503}
        elif for_operators(address, method):
            expected = {403}
        elif address.startswith("uploads/<"):
            # what is not an upload's request is refused before anybody looks whether there is one
            expected = {400, 404, 405}
        else:
            expected = {403, 404}
        if status not in expected:
            wrong.append((address, method, status))
    assert wrong == []


@pytest.mark.parametrize("username", ["ada", "max", "vera"])
def test_roles_do_what_their_scopes_say(acme: Shop, username: str) -> None:
    user = User.objects.get(username=username)
    held = ROLE_SCOPES[Membership.objects.get(team=acme.team, user=user).role]
    client = signed_in(user)
    wrong = []
    # what removes things comes last
    for address, method, scope in sorted(ROUTES, key=lambda route: (route[1] == "DELETE", len(route[0]))):
        status = ask(client, address, method)
        if for_operators(address, method) or scope is Scope.MACHINE or (scope is not None and not allows(held, scope)):
            expected = status == 403
        elif address == "teams/<str:team>/members/<str:username>/" and method == "DELETE":
            # oneself, or as an owner; the last owner stays
            expected = status == (409 if username == "ada" else 403)
        else:
            expected = status not in {401, 403} and (status < 500 or status in {503, 507})
        if not expected:
            wrong.append((address, method, status))
    assert wrong == []


@pytest.mark.parametrize("scope", [Scope.READ, Scope.PUSH, Scope.INFER, Scope.MACHINE])
def test_keys_do_what_their_one_scope_says(acme: Shop, scope: Scope) -> None:
    secret = issue_api_key(team=acme.team, name="one", scopes=[scope]).secret
    client = Client(raise_request_exception=False)
    wrong = []
    for address, method, wanted in ROUTES:
        status = ask(client, address, method, authorization=f"Bearer {secret}")
        allowed = wanted is None or wanted is scope
        if not allowed and status != 403:
            wrong.append((address, method, status))
        if allowed and status in {401, 500}:
            wrong.append((address, method, status))
    assert wrong == []


def test_what_was_deleted_does_not_exist_for_strangers(acme: Shop) -> None:
    delete_adapter(adapter=acme.adapter(), confirm="acme/search")
    eve = User.objects.create_user("eve")
    create_team_for(user=eve, name="rivals")
    assert ask(signed_in(eve), "adapters/<str:team>/<str:name>/restore/", "POST") == 404
    assert ask(signed_in(User.objects.get(username="vera")), "adapters/<str:team>/<str:name>/restore/", "POST") == 403
    assert ask(signed_in(User.objects.get(username="max")), "adapters/<str:team>/<str:name>/restore/", "POST") == 200
