"""Everything a person may go to is found by parts of its name, and nothing of teams that are not theirs."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from controlplane.accounts.principal import principal_of_user
from controlplane.accounts.services import create_team_for
from fleet.models import Worker
from loras.finding import find_places
from tests.integration.registry.shop import Shop


def found(user: User, query: str) -> list[tuple[str, str]]:
    return [(place.kind, place.label) for place in find_places(principal_of_user(user), query)]


@pytest.fixture
def site(shop: Shop) -> Shop:
    """An adapter, a worker, and a stranger's team of a similar name."""
    shop.ready()
    Worker.objects.create(
        machine="rack-7", worker_id="gpu-0", pool="default", state="ready", last_seen_at=timezone.now()
    )
    create_team_for(user=User.objects.create_user("eve"), name="acme-rivals")
    return shop


def test_names_and_pages_are_found_by_their_parts(site: Shop) -> None:
    assert ("adapter", "acme/search") in found(site.owner, "SEAR")
    assert ("adapter", "acme/search") in found(site.owner, "acme/sea")
    assert found(site.owner, "rack gpu") == [("worker", "rack-7/gpu-0")]
    assert any(kind == "base model" for kind, _ in found(site.owner, "minilm"))
    assert found(site.owner, "replay") == [("page", "Dead jobs")]
    assert ("team", "acme") in found(site.owner, "acme")
    assert found(site.owner, "nothing of the kind") == []


def test_others_names_and_staff_pages_stay_out(site: Shop) -> None:
    assert ("team", "acme-rivals") not in found(site.owner, "acme")
    eve = User.objects.get(username="eve")
    assert found(eve, "acme") == [("team", "acme-rivals")]
    assert found(eve, "search") == []
    assert found(eve, "celery") == []
    User.objects.filter(pk=eve.pk).update(is_staff=True)
    assert found(User.objects.get(pk=eve.pk), "celery") == [("page", "System")]


def test_the_page_and_the_list_alone(site: Shop, client: Client) -> None:
    assert client.get("/find/").status_code == 302
    client.force_login(site.owner)
    whole = client.get("/find/", {"q": "sear"}).content.decode()
    alone = client.get("/find/", {"q": "sear"}, headers={"x-requested-with": "fetch"}).content.decode()
    assert "<h1>Find</h1>" in whole
    assert 'href="/adapters/acme/search/"' in whole
    assert 'href="/adapters/acme/search/"' in alone
    assert "<h1>" not in alone
    assert "&lt;b&gt;" in client.get("/find/", {"q": "<b>"}).content.decode()
