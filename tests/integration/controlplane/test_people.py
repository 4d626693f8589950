"""People, their teams and keys: what is offered is what is given, and nobody is left without a team."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from controlplane.accounts.forms import KeyForm
from controlplane.accounts.models import ApiKey, Membership, Team
from controlplane.accounts.principal import principal_of_user
from controlplane.accounts.queries import teams_to_issue
from controlplane.accounts.services import create_team_for, issue_api_key
from controlplane.events.services import record_event
from loras.queries import events_of
from wire.errors import ShoalError
from wire.registry import Scope

pytestmark = pytest.mark.django_db


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def key_form(team: str, *scopes: str) -> dict[str, object]:
    return {"name": "k", "team": team, "scopes": list(scopes), "lifetime_d": ""}


@pytest.mark.parametrize("superuser", [False, True])
def test_the_form_offers_exactly_what_a_key_may_hold(superuser: bool) -> None:
    person = User.objects.create_user("ada", is_superuser=superuser)
    create_team_for(user=person, name="own")
    visited = Team.objects.create(name="visited")
    Membership.objects.create(team=visited, user=person, role=Membership.Role.VIEWER)
    principal = principal_of_user(person)
    offered = {value for value, _ in KeyForm(principal).fields["scopes"].choices}  # type: ignore[attr-defined]
    assert ("machine" in offered) == superuser
    for team in (Team.objects.get(name="own"), visited):
        for scope in Scope:
            may = scope in teams_to_issue(principal)[team.name]
            assert KeyForm(principal, key_form(team.name, scope)).is_valid() == may
            try:
                issue_api_key(team=team, name="k", scopes=[scope], actor=person)
            except ShoalError:
                assert not may, (team, scope)
            else:
                assert may, (team, scope)


def test_a_scope_of_another_team_is_refused_beside_the_form() -> None:
    person = User.objects.create_user("ada")
    create_team_for(user=person, name="own")
    Membership.objects.create(team=Team.objects.create(name="visited"), user=person, role=Membership.Role.VIEWER)
    answer = signed_in(person).post("/keys/", key_form("visited", "push"))
    assert answer.status_code == 200
    assert "You cannot give the scope push in team visited." in answer.content.decode()
    assert not ApiKey.objects.exists()


def test_a_person_made_in_the_admin_has_a_team_and_may_upload() -> None:
    admin = signed_in(User.objects.create_superuser("root"))
    password = "correct horse battery"
    form = {"username": "new.person", "usable_password": "true", "password1": password, "password2": password}
    assert admin.post("/admin/auth/user/add/", form).status_code == 302
    person = User.objects.get(username="new.person")
    assert [(row.team.name, row.role) for row in person.memberships.all()] == [("new.person", "owner")]
    assert "You cannot upload here" not in signed_in(person).get("/upload/").content.decode()
    # saving the person again makes no second team
    kept = {"username": "new.person", "date_joined_0": "2026-01-01", "date_joined_1": "00:00:00", "is_active": "on"}
    assert admin.post(f"/admin/auth/user/{person.pk}/change/", kept).status_code == 302
    assert Team.objects.filter(memberships__user=person).count() == 1


def test_a_person_without_a_team_is_told_so() -> None:
    nobody = signed_in(User.objects.create_user("nobody"))
    for address in ("/upload/", "/adapters/", "/keys/"):
        shown = nobody.get(address).content.decode()
        assert "You belong to no team yet" in shown, address
        assert "You are a viewer" not in shown


def test_events_of_no_team_are_for_operators() -> None:
    owner, staff = User.objects.create_user("ada"), User.objects.create_user("ops", is_staff=True)
    team = create_team_for(user=owner)
    record_event(kind="worker.drain", subject="worker box/cpu", message="asked to drain", actor=staff)
    reading = issue_api_key(team=team, name="r", scopes=[Scope.READ], actor=owner).key
    ApiKey.objects.filter(pk=reading.pk).update(created_by=staff)

    def kinds(user: User) -> set[str]:
        return {event.kind for event in events_of(principal_of_user(user))}

    assert kinds(staff) == {"worker.drain"}
    assert "worker.drain" not in kinds(owner)
    assert kinds(owner)
