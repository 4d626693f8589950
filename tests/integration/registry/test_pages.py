"""Pages of the registry render what there is, ask before they act, and do what their forms say without scripts."""

from __future__ import annotations

import re
import time

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from controlplane.accounts.services import create_team_for, issue_api_key
from loras.metrics.figures import Figures
from loras.metrics.histogram import BUCKETS
from loras.metrics.rows import save_usage_minute
from loras.models import Alias
from loras.services import hold_canary, move_alias
from loras.snippets import usage_snippets
from tests.integration.registry.gateway import Gateway
from tests.integration.registry.shop import BASE, Shop, classifier_facts
from wire.jobs import Task
from wire.registry import Scope

PAGE = "/adapters/acme/search/"


def signed_in(username: str) -> Client:
    client = Client()
    client.force_login(User.objects.get(username=username))
    return client


@pytest.fixture
def person(shop: Shop) -> Client:
    """``ada``, with three ready versions and a canary."""
    for _ in range(3):
        shop.ready(facts=classifier_facts())
    move_alias(adapter=shop.adapter(), alias="live", split={1: 90, 2: 10})
    return signed_in("ada")


def text(client: Client, address: str, data: dict[str, str] | None = None) -> str:
    """The page without its tags, after redirects."""
    answer = client.get(address, follow=True) if data is None else client.post(address, data, follow=True)
    assert answer.status_code == 200, (address, answer.status_code)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def live(shop: Shop) -> dict[str, int]:
    split: dict[str, int] = Alias.objects.get(adapter=shop.adapter(), name="live").split
    return split


def test_metrics_show_versions_side_by_side(shop: Shop, person: Client) -> None:
    assert "No request in this time" in text(person, f"{PAGE}metrics/")
    latency = [0, 0, 200, *[0] * (BUCKETS - 3)]
    figures = Figures(212, refused=2, failed={"internal_error": 10}, latency=latency, latency_sum_ms=3000.0)
    minute = int(time.time()) // 60 * 60
    save_usage_minute(minute, {("acme", "acme/search@2", "live"): figures})
    shown = text(person, f"{PAGE}metrics/?range=15")
    assert "internal_error 10" in shown
    assert " 4.76 " in shown
    assert "2 refused" in shown
    assert "metrics-data" in person.get(f"{PAGE}metrics/").content.decode()


def test_the_header_says_how_it_is_used(shop: Shop, person: Client) -> None:
    assert "none in 30 days" in text(person, PAGE)
    latency = [0, 0, 200, *[0] * (BUCKETS - 3)]
    figures = Figures(210, failed={"internal_error": 10}, latency=latency)
    minute = int(time.time()) // 60 * 60
    # another adapter's requests are not its own
    save_usage_minute(minute, {("acme", "acme/search@2", "live"): figures, ("acme", "acme/searches@1", ""): figures})
    assert re.search(
        r"Requests, last hour 210 p50, ms \d+ p95, ms \d+ Errors 10 internal_error Last request", text(person, PAGE)
    )
    points = re.search(r'polyline points="([^"]+)"', person.get(PAGE).content.decode())
    assert points is not None
    assert points[1].split()[-1] == "180.0,1.0"


def test_a_held_canary_says_why_and_is_resumed_by_its_button(shop: Shop, person: Client) -> None:
    alias = Alias.objects.get(adapter=shop.adapter(), name="live")
    hold_canary(alias=alias, number=2, reason="12 of 20 requests failed", figures={})
    for tab in ("versions/", "metrics/"):
        assert "12 of 20 requests failed" in text(person, PAGE + tab)
    text(person, f"{PAGE}aliases/live/resume/", {})
    assert live(shop) == {"1": 90, "2": 10}


def test_a_canary_begins_with_a_share(shop: Shop, person: Client) -> None:
    assert "Share of requests" in text(person, f"{PAGE}move/?version=3")
    sent = {"version": "3", "expect": '{"1":90,"2":10}', "share": "25"}
    text(person, f"{PAGE}move/?version=3", sent)
    assert live(shop) == {"1": 75, "3": 25}
    # what the form was made of is not what is there any more
    assert "points at @1 75, @3 25" in text(person, f"{PAGE}move/?version=3", sent)


def test_versions_are_compared_retired_deleted_and_restored(shop: Shop, person: Client) -> None:
    assert "Rank" in text(person, f"{PAGE}compare/?before=1&after=3")
    assert "Version 1" in text(person, f"{PAGE}compare/")
    assert "Retire version 3?" in text(person, f"{PAGE}versions/3/retire/")
    assert "is out of service" in text(person, f"{PAGE}versions/3/retire/", {})
    assert "is back" in text(person, f"{PAGE}versions/3/restore/", {})
    assert "Deleted, restorable" in text(person, f"{PAGE}versions/3/delete/", {})
    assert "answers for the alias live" in text(person, f"{PAGE}versions/1/delete/", {})


def test_deleting_an_adapter_asks_for_its_name(shop: Shop, person: Client) -> None:
    assert "acme/search:live" in text(person, f"{PAGE}delete/")
    assert "Send confirm=acme/search" in text(person, f"{PAGE}delete/", {"confirm": "search"})
    assert "is deleted" in text(person, f"{PAGE}delete/", {"confirm": "acme/search"})
    assert person.get(PAGE).status_code == 404
    assert "acme/search is back" in text(person, f"{PAGE}restore/", {})


def test_viewers_look_and_strangers_see_nothing(shop: Shop, person: Client) -> None:
    shop.member("vera", "viewer")
    User.objects.create_user("eve")
    looking, strange = signed_in("vera"), signed_in("eve")
    for tab in ("", "versions/", "files/", "report/", "metrics/", "events/", "compare/"):
        assert looking.get(PAGE + tab).status_code == 200
        assert strange.get(PAGE + tab).status_code == 404
    assert "Delete adapter" not in looking.get(PAGE).content.decode()
    for address in ("delete/", "versions/3/retire/", "versions/3/delete/", "aliases/live/resume/", "move/"):
        assert looking.post(PAGE + address).status_code == 403
        assert strange.post(PAGE + address).status_code == 404
    assert "yes" in text(looking, PAGE)


def test_people_pages(shop: Shop) -> None:
    max_ = User.objects.create_user("max")
    owner = signed_in("ada")
    assert "acme" in text(owner, "/teams/")
    assert "max joined acme as viewer" in text(
        owner, "/teams/acme/people/", {"user": "max", "role": "viewer", "new": "true"}
    )
    assert "There is no person" in text(
        owner, "/teams/acme/people/", {"user": "nobody", "role": "viewer", "new": "true"}
    )
    assert "last owner of acme" in text(owner, "/teams/acme/people/", {"user": "ada", "role": "none"})
    assert "max is member of acme" in text(owner, "/teams/acme/people/", {"user": "max", "role": "member"})
    other = signed_in("max")
    assert "Add a person" not in text(other, "/teams/acme/")
    assert other.post("/teams/acme/people/", {"user": "ada", "role": "viewer"}).status_code == 403
    issue_api_key(team=shop.team, name="of max", scopes=[Scope.READ], actor=max_)
    asked = text(other, "/teams/acme/people/max/remove/")
    assert "Leave acme?" in asked
    assert "1 key made in it is revoked" in asked
    assert "Remove max from acme?" in text(owner, "/teams/acme/people/max/remove/")
    assert other.get("/teams/acme/people/ada/remove/").status_code == 403
    assert owner.get("/teams/acme/people/nobody/remove/").status_code == 404
    assert "max left acme" in text(other, "/teams/acme/people/", {"user": "max", "role": "none"})
    assert other.get("/teams/acme/").status_code == 404
    assert "The team solo is yours" in text(other, "/teams/", {"name": "solo"})
    assert max_.memberships.count() == 1


def test_limits_of_a_key_on_its_page(shop: Shop) -> None:
    key = issue_api_key(team=shop.team, name="app", scopes=[Scope.INFER], actor=shop.owner).key
    owner = signed_in("ada")
    assert "Requests a minute" in text(owner, f"/keys/{key.pk}/change/")
    form = {"name": "app two", "max_in_flight": "4", "requests_per_minute": ""}
    assert "4 at once" in text(owner, f"/keys/{key.pk}/change/", form)
    assert "greater than or equal to 1" in text(owner, f"/keys/{key.pk}/change/", form | {"max_in_flight": "0"})
    shop.member("vera", "viewer")
    assert signed_in("vera").get(f"/keys/{key.pk}/change/").status_code == 403


def test_the_feed_is_filtered_and_keeps_to_ones_teams(shop: Shop, person: Client) -> None:
    create_team_for(user=User.objects.create_user("eve"), name="rivals")
    shown = text(person, "/events/")
    assert "acme/search:live → @1 90, @2 10" in shown
    assert "rivals" not in shown
    assert "Adapter acme/search created" not in text(person, "/events/?kind=alias")
    assert "No event matches" in text(person, "/events/?adapter=acme/none")
    assert "Team acme created" in text(person, "/events/?kind=team&actor=ada")


def test_operators_see_system_and_dead_jobs(shop: Shop) -> None:
    shop.member("vera", "viewer")
    assert signed_in("vera").get("/system/").status_code == 403
    User.objects.filter(username="ada").update(is_staff=True)
    owner = signed_in("ada")
    shown = text(owner, "/system/")
    for part in ("Database", "Redis", "NATS", "Storage", "Versions"):
        assert part in shown
    assert "No job died" in text(owner, "/dead-jobs/")
    assert "There is no dead job 7" in text(owner, "/dead-jobs/7/replay/", {})
    assert signed_in("vera").post("/dead-jobs/7/replay/").status_code == 403


def test_the_playground_asks_base_and_adapter_with_one_key(shop: Shop, gateway: Gateway) -> None:
    shop.ready()
    owner, address = signed_in("ada"), f"{PAGE}playground/"
    gateway.models = {
        BASE: {"q": [1, 0], "near": [0, 1], "far": [1, 0]},
        "acme/search": {"q": [1, 0], "near": [1, 0], "far": [0, 1]},
    }
    gateway.refusals = [401]
    sent = {"task": "embeddings", "text": "q", "documents": "far\n\nnear\n"}
    base, adapter = (
        text(owner, address, sent).split("Ask both")[1].split(f" {BASE} base ")[1].split("acme/search adapter")
    )
    assert base.index("far 1.000") < base.index("near 0.000")
    assert adapter.index("near 1.000") < adapter.index("far 0.000")
    text(owner, address, sent)
    assert len(gateway.keys) == 1
    assert "at least one document" in text(owner, address, {"task": "embeddings", "text": "q"})
    gateway.models = {BASE: None, "acme/search": None}
    assert "cannot /v1/embeddings" in text(owner, address, sent)
    # somebody else's session has a key of its own; who may only look may ask, too
    shop.member("vera", "viewer")
    text(signed_in("vera"), address, sent)
    assert len(gateway.keys) == 2


def test_an_evaluation_is_attached_and_shown(shop: Shop, person: Client) -> None:
    rows = SimpleUploadedFile("rows.jsonl", b'{"query": "a", "positive": "b"}')
    answer = person.post(f"{PAGE}versions/2/evaluate/", {"evaluation": rows, "promote": "if_better"}, follow=True)
    assert "1 rows, retrieval" in answer.content.decode()
    bad = SimpleUploadedFile("rows.jsonl", b"no json")
    answer = person.post(f"{PAGE}versions/2/evaluate/", {"evaluation": bad}, follow=True)
    assert "line 1: no JSON" in answer.content.decode()


@pytest.mark.parametrize("task", list(Task))
def test_snippets_are_programs_of_their_task(task: Task) -> None:
    for snippet in usage_snippets("acme/search", "http://gateway", [task]):
        assert "acme/search" in snippet.text
        if "import " in snippet.text:
            compile(snippet.text, snippet.key, "exec")
    assert [s.key for s in usage_snippets("a/b", "u")] == ["openai", "curl", "python", "shoal"]
