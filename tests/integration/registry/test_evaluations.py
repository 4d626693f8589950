"""Evaluations through a scripted gateway: the table, the decision, and what a dead process leaves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.accounts.models import ApiKey
from controlplane.events.models import Event
from loras.evaluation import running
from loras.models import Alias, EvaluationRun, Version
from loras.services import attach_evaluation, move_alias
from loras.services.evaluations import claim_evaluation, sweep_evaluations
from loras.tasks import run_evaluation
from tests.integration.registry.gateway import Gateway
from tests.integration.registry.shop import BASE, Shop

PAIRS = b'{"query": "a", "positive": "A"}\n{"query": "b", "positive": "B"}\n'
LABELLED = b'{"text": "a", "label": "yes"}\n{"text": "b", "label": "no"}\n'
PROMPTS = b'{"prompt": "a", "expected": "A."}\n'
GOOD = {"a": [1, 0], "A": [1, 0], "b": [0, 1], "B": [0, 1]}
BAD = {"a": [1, 0], "A": [0, 1], "b": [0, 1], "B": [1, 0]}


def measured(version: Version, rows: bytes, **wishes: Any) -> EvaluationRun:
    run = attach_evaluation(version=version, data=rows, **wishes)
    run_evaluation(run.pk)
    run.refresh_from_db()
    return run


def live(shop: Shop) -> dict[str, int]:
    split: dict[str, int] = Alias.objects.get(adapter=shop.adapter(), name="live").split
    return split


def test_a_better_version_goes_live_and_the_reason_is_an_event(shop: Shop, gateway: Gateway) -> None:
    shop.ready(), shop.ready()
    gateway.models = {"acme/search@1": BAD, "acme/search@2": GOOD, BASE: BAD}
    # the key and the version reach a gateway a moment later
    gateway.refusals = [401, 404]
    run = measured(Version.objects.get(number=2), PAIRS, promote_if_better=True, actor=shop.owner)
    assert run.state == "done", run.error
    table = {row["role"]: (row["name"], row["metrics"]) for row in run.results}
    assert table["new"] == ("acme/search@2", {"recall_at_1": 1.0, "mrr": 1.0})
    assert table["live"] == ("acme/search@1", {"recall_at_1": 0.0, "mrr": 0.5})
    assert table["base"][0] == BASE
    assert live(shop) == {"2": 100}
    assert "mrr 1.000 is better than 0.500 of acme/search@1" in run.decision
    assert run.decision in Event.objects.get(kind="evaluation.decided").message
    # its key lived as long as the measurement
    assert len(gateway.keys) == 1
    assert not ApiKey.objects.usable().filter(name__startswith="evaluation").exists()


@pytest.mark.parametrize(
    ("models", "said"),
    [
        ({"acme/search@1": GOOD, "acme/search@2": GOOD, BASE: BAD}, "is not better than 1.000 of acme/search@1"),
        ({"acme/search@1": None, "acme/search@2": GOOD, BASE: BAD}, "nobody knows which is better"),
        ({"acme/search@1": BAD, "acme/search@2": None, BASE: BAD}, "could not be measured"),
    ],
)
def test_what_is_not_better_stays_where_it_is(shop: Shop, gateway: Gateway, models: Any, said: str) -> None:
    shop.ready(), shop.ready()
    gateway.models = models
    run = measured(Version.objects.get(number=2), PAIRS, promote_if_better=True)
    assert said in run.decision
    assert run.state == ("failed" if models["acme/search@2"] is None else "done")
    assert live(shop) == {"1": 100}


def test_live_that_moved_meanwhile_is_left_alone(shop: Shop, gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        shop.ready()
    gateway.models = {"acme/search@1": BAD, "acme/search@2": GOOD, BASE: BAD}
    run = attach_evaluation(version=Version.objects.get(number=2), data=PAIRS, promote_if_better=True)
    claim = claim_evaluation(run_id=run.pk)
    assert claim is not None
    models = running._models(claim.run)
    move_alias(adapter=shop.adapter(), alias="live", split={3: 100})
    monkeypatch.setattr(running, "_models", lambda _: models)
    assert running.run_claimed(claim)
    run.refresh_from_db()
    assert "live moved to acme/search@3" in run.decision
    assert live(shop) == {"3": 100}


@pytest.mark.parametrize(
    ("rows", "table", "metrics"),
    [
        (LABELLED, {"a": "yes", "b": "yes"}, {"accuracy": 0.5, "macro_f1": 0.3333}),
        (PROMPTS, {"a": " a. "}, {"exact_match": 1.0}),
    ],
)
def test_labels_and_answers(shop: Shop, gateway: Gateway, rows: bytes, table: Any, metrics: Any) -> None:
    shop.ready()
    gateway.models = {"acme/search@1": table}
    run = measured(Version.objects.get(number=1), rows)
    lines = {row["role"]: row for row in run.results}
    assert lines["new"]["metrics"] == metrics
    # the base model has no such head: that is said, and is no failure of the run
    assert "task_unsupported" in lines["base"]["problem"]
    assert (run.state, run.decision) == ("done", "")


def test_a_dead_process_is_taken_over_once_then_it_is_said(shop: Shop) -> None:
    shop.ready()
    version = Version.objects.get(number=1)
    run = attach_evaluation(version=version, data=PAIRS)
    second = attach_evaluation(version=version, data=PAIRS)
    assert claim_evaluation(run_id=run.pk) is not None
    # one at a time
    assert claim_evaluation(run_id=second.pk) is None
    long_ago = timezone.now() - timedelta(hours=1)
    for state in ("queued", "failed"):
        EvaluationRun.objects.filter(pk=run.pk).update(claimed_at=long_ago)
        sweep_evaluations()
        run.refresh_from_db()
        assert run.state == state
        if state == "queued":
            assert claim_evaluation(run_id=run.pk) is not None
    assert "ended 2 times" in run.error
    assert claim_evaluation(run_id=second.pk) is not None


def test_a_rejected_upload_is_not_measured(shop: Shop) -> None:
    version = shop.upload(evaluation=PAIRS)
    Version.objects.filter(pk=version.pk).update(state="rejected")
    sweep_evaluations()
    assert EvaluationRun.objects.get().state == "failed"
