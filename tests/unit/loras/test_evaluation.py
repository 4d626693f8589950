"""Rows, metrics and decisions of evaluations."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loras.evaluation import metrics
from loras.evaluation.decision import Measured, Role, decide
from loras.evaluation.rows import MAX_ROWS, EvaluationKind, parse_rows
from wire.errors import ShoalError


def test_rows_of_each_kind() -> None:
    retrieval = parse_rows(b'{"query": "a", "positive": "b", "extra": 1}\n\n{"query": "c", "positive": "d"}\n')
    assert (retrieval.kind, retrieval.pairs) == (EvaluationKind.RETRIEVAL, [("a", "b"), ("c", "d")])
    assert parse_rows(b'\xef\xbb\xbf{"text": "a", "label": 3}').pairs == [("a", "3")]
    assert parse_rows('{"prompt": "ä", "expected": "ö"}'.encode()).kind is EvaluationKind.GENERATION


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no row"),
        (b'{"query": "a", "positive": "b"}\n{"query": "a"', "line 2: no JSON"),
        (b"[1]", "line 1: a JSON list"),
        (b'{"question": "a"}', "line 1: has the fields 'question'"),
        (b'{"text": "a", "label": "b"}\n{"query": "a", "positive": "b"}', "line 2: is a row for retrieval"),
        (b'{"text": "", "label": "b"}', "line 1: 'text' is no text"),
        (b'{"text": "a", "label": null}', "line 1: 'label' is no text"),
        (b'{"text": "%s", "label": "b"}' % (b"x" * 9000), "line 1: 'text' has 9000 characters"),
        (b"\xff\xfe", "line 1: no JSON"),
        (b"[" * 100_000, "line 1: nested too deeply"),
        (b'{"text": "a", "label": "b"}\n' * (MAX_ROWS + 1), f"more than {MAX_ROWS} rows"),
        (b"x" * (1024 * 1024 + 1), "1048577 bytes"),
    ],
)
def test_bad_rows_are_refused_by_line(data: bytes, said: str) -> None:
    with pytest.raises(ShoalError) as refused:
        parse_rows(data)
    assert said in refused.value.info.message
    assert refused.value.info.param == "evaluation"


@given(st.binary(max_size=200))
def test_any_bytes_are_rows_or_a_refusal(data: bytes) -> None:
    with contextlib.suppress(ShoalError):
        assert parse_rows(data).pairs


def test_metrics() -> None:
    vectors = np.eye(3, dtype=np.float32)
    assert metrics.retrieval(vectors, vectors, [0, 1, 2]) == {"recall_at_1": 1.0, "mrr": 1.0}
    second = metrics.retrieval(vectors[:1], np.array([[1, 0, 0], [1, 0.5, 0]], dtype=np.float32), [1])
    assert second == {"recall_at_1": 0.0, "mrr": 0.5}
    # a model that says the same of everything has found nothing
    same = metrics.retrieval(np.ones((4, 3), np.float32), np.ones((4, 3), np.float32), [0, 1, 2, 3])
    assert same == {"recall_at_1": 0.0, "mrr": 0.25}
    assert metrics.classification(["a", "a", "b"], ["a", "b", "b"]) == {"accuracy": 0.6667, "macro_f1": 0.6667}
    assert metrics.exact_match(["Paris", "four"], [" paris ", "4"]) == {"exact_match": 0.5}


def line(role: Role, value: float | None) -> Measured:
    return Measured(role, f"team/a@{role}", {} if value is None else {"mrr": value}, "" if value else "gone")


@pytest.mark.parametrize(
    ("lines", "promote"),
    [
        ([line(Role.NEW, 0.9), line(Role.LIVE, 0.8), line(Role.BASE, 0.95)], True),
        ([line(Role.NEW, 0.8), line(Role.LIVE, 0.8), line(Role.BASE, 0.1)], False),
        ([line(Role.NEW, 0.7), line(Role.LIVE, 0.8)], False),
        ([line(Role.NEW, 0.7), line(Role.BASE, 0.6)], True),
        ([line(Role.NEW, 0.5), line(Role.BASE, 0.6)], False),
        ([line(Role.NEW, None), line(Role.LIVE, 0.8)], False),
        # what is live could not be measured: nobody knows which is better
        ([line(Role.NEW, 0.9), line(Role.LIVE, None), line(Role.BASE, 0.1)], False),
        ([line(Role.NEW, 0.9)], True),
        ([], False),
    ],
)
def test_promotion_needs_a_better_number(lines: list[Measured], promote: bool) -> None:
    decision = decide(EvaluationKind.RETRIEVAL, lines)
    assert decision.promote is promote
    assert decision.reason.startswith("Promoted" if promote else "Not promoted")
