"""REST of the lifecycle after ready: delete, restore, compare, metrics, holds, evaluations."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.accounts.services import issue_api_key
from loras.metrics.figures import Figures
from loras.metrics.histogram import BUCKETS
from loras.metrics.rows import prune_usage, save_usage_minute
from loras.models import EvaluationRun, UsageMinute
from loras.services import hold_canary, move_alias
from tests.integration.registry.shop import Shop
from wire.registry import Scope

API = "/api/v1/adapters/acme/search/"


class Api:
    """Requests with a key."""

    def __init__(self, secret: str) -> None:
        self.client = Client(headers={"authorization": f"Bearer {secret}"})

    def __call__(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        sent = {} if body is None else {"data": body, "content_type": "application/json"}
        answer = getattr(self.client, method)(path, **sent, **more)
        return answer.status_code, answer.json() if answer.content else None


@pytest.fixture
def api(shop: Shop) -> Api:
    """With every scope that its owner may give."""
    scopes = [Scope.READ, Scope.PUSH, Scope.INFER, Scope.ADMIN]
    return Api(issue_api_key(team=shop.team, name="test", scopes=scopes, actor=shop.owner).secret)


def test_a_deleted_version_is_off_the_list_and_comes_back(shop: Shop, api: Api) -> None:
    shop.ready(), shop.ready()
    assert api("delete", f"{API}versions/1/")[1]["error"]["code"] == "in_use"
    assert api("delete", f"{API}versions/2/") == (204, None)
    assert [row["number"] for row in api("get", f"{API}versions/")[1]["results"]] == [1]
    gone = api("get", f"{API}versions/?deleted=true")[1]["results"]
    assert [(row["number"], row["state"]) for row in gone] == [(2, "retired")]
    assert gone[0]["restorable_until"] > gone[0]["deleted_at"]
    status, back = api("post", f"{API}versions/2/restore/")
    assert (status, back["state"], back["deleted_at"]) == (200, "ready", None)
    assert api("post", f"{API}versions/2/restore/")[0] == 409
    assert api("post", f"{API}versions/2/retire/")[1]["state"] == "retired"
    assert [row["number"] for row in api("get", f"{API}versions/")[1]["results"]] == [2, 1]


@pytest.mark.parametrize(
    "body",
    [
        {"version": 1, "expect": {"version": [1]}},
        {"version": 1, "expect": {"version": {"a": 1}}},
        {"version": 1, "expect": {"split": None}},
        '{"version": 1, "expect": {"1": 1e999}}',
        '{"version": 1, "expect": {"split": {"1": 1e999}}}',
        {"version": 10**30},
        {"split": {str(10**30): 1, "1": 1}},
        {"split": {"1": 10**30}},
        {"split": {"1": 50, "01": 50}},
    ],
)
def test_odd_targets_of_an_alias_are_refused(shop: Shop, api: Api, body: Any) -> None:
    shop.ready()
    status, answer = api("put", f"{API}aliases/live/", body)
    assert status in (400, 404), answer
    assert answer["error"]["param"] in ("expect", "split", "version")


@pytest.mark.parametrize("body", ["[" * 50_000, '{"version": 1, "expect": ' + '{"a":' * 20_000])
def test_a_body_nested_without_end_is_refused(shop: Shop, api: Api, body: str) -> None:
    shop.ready()
    status, answer = api("put", f"{API}aliases/live/", body)
    assert (status, answer["error"]["code"]) == (400, "invalid_json")


def test_a_deleted_adapter_is_restored_with_its_aliases(shop: Shop, api: Api) -> None:
    shop.ready()
    assert api("delete", f"{API}?confirm=acme/search") == (204, None)
    assert api("get", API)[0] == 404
    assert [row["name"] for row in api("get", "/api/v1/deleted-adapters/")[1]["results"]] == ["acme/search"]
    status, back = api("post", f"{API}restore/")
    assert (status, back["aliases"]) == (200, {"live": {"1": 100}})
    assert api("post", f"{API}restore/")[0] == 404


def answered(requests: int, *, failed: int = 0, bucket: int = 2) -> Figures:
    latency = [0] * BUCKETS
    latency[bucket] = requests - failed
    return Figures(requests, failed={"internal_error": failed} if failed else {}, latency=latency, latency_sum_ms=15.0)


def test_metrics_by_version_and_alias_are_summed_and_never_shrink(shop: Shop, api: Api) -> None:
    shop.ready(), shop.ready()
    minute = int(time.time()) // 60 * 60
    keys = {number: ("acme", f"acme/search@{number}", "live") for number in (1, 2)}
    first = {keys[1]: answered(90), keys[2]: answered(10, failed=4, bucket=5)}
    assert save_usage_minute(minute, first) == 2
    # again, and with less after Redis was emptied: nothing changes
    assert save_usage_minute(minute, first) == 0
    assert save_usage_minute(minute, {keys[1]: answered(3)}) == 0
    assert save_usage_minute(minute, {keys[1]: answered(100)}) == 1
    save_usage_minute(minute - 60, {("acme", "acme/search@2", ""): answered(10, bucket=5)})
    # what belongs to others does not show
    save_usage_minute(
        minute, {("rivals", "acme/search@1", "live"): answered(7), ("acme", "acme/searching@1", ""): answered(7)}
    )

    status, body = api("get", f"{API}metrics/?minutes=30")
    assert status == 200
    rows = {row["version"]: row["figures"] for row in body["versions"]}
    assert (rows[1]["requests"], rows[1]["error_rate"]) == (100, 0.0)
    assert (rows[2]["requests"], rows[2]["failed"], rows[2]["error_rate"]) == (20, {"internal_error": 4}, 0.2)
    assert rows[1]["p50_ms"] < rows[2]["p50_ms"]
    assert {(row["alias"], row["version"], row["figures"]["requests"]) for row in body["aliases"]} == {
        ("", 2, 10), ("live", 1, 100), ("live", 2, 10),
    }  # fmt: skip
    series = {row["version"]: row for row in body["series"]}
    assert len(body["at"]) == 30 == len(series[1]["p95_ms"])
    assert series[2]["requests_per_s"][-2:] == [round(10 / 60, 4), round(10 / 60, 4)]
    assert body["total"]["requests"] == 120
    for minutes in ("0", "x", "10081", "١"):
        assert api("get", f"{API}metrics/?minutes={minutes}")[0] == 400
    UsageMinute.objects.update(minute=timezone.now() - timedelta(days=31))
    assert prune_usage() == 5


def test_a_held_canary_is_shown_with_its_reason_and_resumed(shop: Shop, api: Api) -> None:
    shop.ready(), shop.ready()
    alias = move_alias(adapter=shop.adapter(), alias="live", split={1: 90, 2: 10})
    hold_canary(alias=alias, number=2, reason="9 of 9 requests failed", figures={})
    (hold,) = api("get", f"{API}metrics/")[1]["holds"]
    assert (hold["version"], hold["reason"], hold["split_before"]) == (2, "9 of 9 requests failed", {"1": 90, "2": 10})
    status, body = api("post", f"{API}aliases/live/resume/")
    assert (status, body["aliases"]) == (200, {"live": {"1": 90, "2": 10}})
    assert api("post", f"{API}aliases/live/resume/")[1]["error"]["code"] == "conflict"


def test_two_versions_line_by_line(shop: Shop, api: Api) -> None:
    shop.ready(message="first run"), shop.ready(message="second run")
    status, body = api("get", f"{API}versions/1/compare/?with=2")
    assert status == 200
    lines = {(line["group"], line["what"]): line for line in body["lines"]}
    assert lines["Configuration", "Rank"] == {
        "group": "Configuration", "what": "Rank", "before": "8", "after": "8", "differs": False,
    }  # fmt: skip
    assert lines["Content", "Message"]["differs"]
    assert lines["Report", "Files"]["after"] == "pass"
    assert api("get", f"{API}versions/1/compare/?with=1")[0] == 400
    assert api("get", f"{API}versions/1/compare/?with=9")[1]["error"]["code"] == "version_not_found"


def test_evaluations_are_attached_as_rows_or_file(shop: Shop, api: Api) -> None:
    shop.ready()
    status, run = api("post", f"{API}versions/1/evaluations/", {"rows": [{"query": "a", "positive": "b"}]})
    assert (status, run["state"], run["kind"], run["rows"]) == (202, "queued", "retrieval", 1)
    status, refused = api("post", f"{API}versions/1/evaluations/", {"rows": [{"query": "a"}]})
    assert (status, refused["error"]["param"]) == (400, "evaluation")
    assert "line 1" in refused["error"]["message"]
    assert api("post", f"{API}versions/1/evaluations/", {})[0] == 400
    assert [row["id"] for row in api("get", f"{API}versions/1/evaluations/")[1]["results"]] == [run["id"]]
    waiting = shop.upload(evaluation=b'{"text": "a", "label": "b"}', promote="if_better")
    row = EvaluationRun.objects.get(version=waiting)
    assert (row.state, row.promote_if_better, waiting.promote) == ("waiting", True, False)
    shop.decide(waiting, shop.accepted())
    row.refresh_from_db()
    assert row.state == "queued"
