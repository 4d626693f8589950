"""Teams, roles and keys: the last owner stays, who leaves loses keys, limits reach the gateways."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from controlplane.accounts.members import add_member, change_role, remove_member
from controlplane.accounts.models import ApiKey, Membership, Team
from controlplane.accounts.registry import key_records
from controlplane.accounts.services import create_team_for, issue_api_key, note_keys_used
from controlplane.events.models import Event
from tests.integration.registry.shop import Shop
from wire.errors import Code, ShoalError
from wire.registry import Scope


def ask(user: User, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    client = Client()
    client.force_login(user)
    sent = {} if body is None else {"data": body, "content_type": "application/json"}
    answer = getattr(client, method)(f"/api/v1/{path}", **sent)
    return answer.status_code, answer.json() if answer.content else None


def test_people_come_change_and_go(shop: Shop) -> None:
    User.objects.create_user("max")
    new = {"user": "max", "role": "member"}
    assert ask(shop.owner, "post", "teams/acme/members/", new)[0] == 201
    assert ask(shop.owner, "post", "teams/acme/members/", new)[1]["error"]["code"] == "conflict"
    assert ask(shop.owner, "post", "teams/acme/members/", {"user": "nobody", "role": "member"})[0] == 404
    assert ask(shop.owner, "post", "teams/acme/members/", {"user": "max", "role": "king"})[0] == 400
    members = ask(shop.owner, "get", "teams/acme/members/")[1]["results"]
    assert {(row["user"], row["role"]) for row in members} == {("ada", "owner"), ("max", "member")}
    assert ask(shop.owner, "patch", "teams/acme/members/max/", {"role": "viewer"})[1]["role"] == "viewer"
    # everybody may leave, nobody but an owner sends others away
    leaver = User.objects.get(username="max")
    assert ask(leaver, "delete", "teams/acme/members/ada/")[0] == 403
    assert ask(leaver, "delete", "teams/acme/members/max/")[0] == 204
    create_team_for(user=leaver, name="elsewhere")
    assert ask(leaver, "get", "teams/acme/members/")[0] == 404
    kinds = list(Event.objects.filter(kind__startswith="member.").order_by("id").values_list("kind", flat=True))
    assert kinds == ["member.added", "member.changed", "member.removed"]


@pytest.mark.parametrize("role", ["member", "viewer"])
def test_the_last_owner_stays(shop: Shop, role: str) -> None:
    with pytest.raises(ShoalError) as refused:
        change_role(team=shop.team, username="ada", role=role)
    assert refused.value.code is Code.IN_USE
    with pytest.raises(ShoalError, match="last owner of acme"):
        remove_member(team=shop.team, username="ada")
    shop.member("second", Membership.Role.OWNER)
    remove_member(team=shop.team, username="ada")
    assert not Membership.objects.filter(team=shop.team, user=shop.owner).exists()


def test_keys_go_with_the_rights_of_their_maker(shop: Shop) -> None:
    user = shop.member("max", Membership.Role.MEMBER)
    push = issue_api_key(team=shop.team, name="push", scopes=[Scope.PUSH], actor=user).key
    infer = issue_api_key(team=shop.team, name="infer", scopes=[Scope.INFER], actor=user).key
    other = issue_api_key(team=shop.team, name="other", scopes=[Scope.PUSH], actor=shop.owner).key

    def usable() -> set[int]:
        return set(ApiKey.objects.usable().values_list("pk", flat=True))

    change_role(team=shop.team, username="max", role="viewer")
    assert usable() == {infer.pk, other.pk}
    remove_member(team=shop.team, username="max")
    assert usable() == {other.pk}
    assert push.sha256 not in key_records()
    add_member(team=shop.team, username="max", role="member")
    assert usable() == {other.pk}


def test_limits_of_a_key_change_and_reach_the_gateways(shop: Shop) -> None:
    made = ask(shop.owner, "post", "keys/", {"name": "app", "scopes": ["infer"], "max_in_flight": 8})[1]
    key = ApiKey.objects.get(pk=made["id"])
    assert key_records([key.sha256])[key.sha256].max_in_flight == 8
    body = {"requests_per_minute": 600, "max_in_flight": None}
    assert ask(shop.owner, "patch", f"keys/{key.pk}/", body)[1]["requests_per_minute"] == 600
    record = key_records([key.sha256])[key.sha256]
    assert (record.max_in_flight, record.requests_per_minute) == (None, 600)
    assert ask(shop.owner, "patch", f"keys/{key.pk}/", {"max_in_flight": 0})[0] == 400
    assert ask(shop.owner, "delete", f"keys/{key.pk}/")[0] == 204
    assert ask(shop.owner, "patch", f"keys/{key.pk}/", body)[0] == 409
    # a gateway's word of keys in use, at most once a minute each
    used = issue_api_key(team=shop.team, name="used", scopes=[Scope.INFER]).key
    assert note_keys_used([used.prefix, "shoal_nobody"]) == 1
    assert note_keys_used([used.prefix]) == 0


def test_a_person_makes_a_team_and_a_key_does_not(shop: Shop) -> None:
    assert ask(shop.owner, "post", "teams/", {"name": "second"})[0] == 201
    assert ask(shop.owner, "post", "teams/", {"name": "second"})[1]["error"]["code"] == "conflict"
    assert ask(shop.owner, "post", "teams/", {"name": "No Such"})[1]["error"]["code"] == "invalid_name"
    secret = issue_api_key(team=shop.team, name="a", scopes=[Scope.ADMIN]).secret
    client = Client(headers={"authorization": f"Bearer {secret}"})
    assert client.post("/api/v1/teams/", {"name": "third"}, content_type="application/json").status_code == 403
    assert set(Team.objects.values_list("name", flat=True)) == {"acme", "second"}
