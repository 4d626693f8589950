"""Streams whose worker dies: each character once, or an error."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.parts import MAX_RUNS, Parts
from wire.errors import ShoalError
from wire.jobs import GenerateOutputs, Result, TokenLogprob

TOKENS = [f"t{number} " for number in range(30)]
TEXT = "".join(TOKENS)


def run_of(cuts: list[int], worker: str, tokens: list[str] = TOKENS) -> list[Result]:
    """``tokens`` in parts that end at ``cuts``."""
    edges = [0, *sorted(set(cuts)), len(tokens)]
    parts = [tokens[start:end] for start, end in pairwise(edges)]
    return [
        Result(
            job="j",
            worker=worker,
            number=number,
            final=number == len(parts) - 1,
            outputs=GenerateOutputs(text="".join(part), logprobs=[TokenLogprob(token, -1.0) for token in part]),
        )
        for number, part in enumerate(parts)
    ]


def take_all(parts: Parts, results: list[Result]) -> None:
    """Take ``results`` in order."""
    for result in results:
        parts.take(result)


def passed_on(parts: Parts) -> tuple[str, list[str]]:
    """Text and tokens that went to the client."""
    outputs = [result.outputs for result in parts.ready]
    assert all(isinstance(each, GenerateOutputs) for each in outputs)
    text = "".join(each.text for each in outputs)  # type: ignore[union-attr]
    return text, [token.token for each in outputs for token in each.logprobs]  # type: ignore[union-attr]


cuts_of = st.lists(st.integers(1, len(TOKENS) - 1), max_size=12)


@given(st.lists(st.tuples(cuts_of, st.integers(0, 12)), max_size=5), cuts_of, st.booleans())
def test_any_runs_that_break_off_and_one_that_ends_give_the_text_once(
    lost: list[tuple[list[int], int]], last: list[int], same_worker: bool
) -> None:
    parts = Parts()
    for number, (cuts, kept) in enumerate(lost):
        for result in run_of(cuts, "w" if same_worker else f"w{number}")[:-1][:kept]:
            parts.take(result)
    for result in run_of(last, "w" if same_worker else "last"):
        parts.take(result)
    assert passed_on(parts) == (TEXT, TOKENS)
    assert [result.final for result in parts.ready][-1:] == [True]
    assert sum(result.final for result in parts.ready) == 1


@given(st.lists(st.integers(0, 1), min_size=40, max_size=40), cuts_of, cuts_of)
def test_two_workers_at_once_give_the_text_once(order: list[int], first: list[int], second: list[int]) -> None:
    """A frozen worker that comes back goes on beside the one that took over."""
    parts = Parts()
    runs = [run_of(first, "a"), run_of(second, "b")]
    for which in order:
        if runs[which]:
            parts.take(runs[which].pop(0))
        if parts.ready and parts.ready[-1].final:
            assert passed_on(parts) == (TEXT, TOKENS)
            return


@given(st.integers(1, 28), st.integers(0, 29))
def test_another_text_is_never_passed_off_as_the_same(kept: int, changed: int) -> None:
    parts = Parts()
    every = list(range(1, len(TOKENS)))
    for result in run_of(every, "a")[:kept]:
        parts.take(result)
    other = [*TOKENS[:changed], "X", *TOKENS[changed + 1 :]]
    if changed >= kept:
        # What nobody has seen yet may differ: the client gets one text, the second worker's.
        for result in run_of(every, "b", other):
            parts.take(result)
        assert passed_on(parts)[0] == "".join(other)
        return
    with pytest.raises(ShoalError, match="another text"):
        take_all(parts, run_of(every, "b", other))


def test_a_shorter_text_is_another_text() -> None:
    parts = Parts()
    for result in run_of([10], "a")[:1]:
        parts.take(result)
    with pytest.raises(ShoalError, match="another text"):
        take_all(parts, run_of([], "b", TOKENS[:5]))


def test_a_gap_ends_the_stream_when_the_run_does() -> None:
    parts = Parts()
    results = run_of([3, 6, 9], "a")
    parts.take(results[0])
    parts.take(results[2])
    assert passed_on(parts)[1] == TOKENS[:3]
    with pytest.raises(ShoalError, match="from number 1 on"):
        parts.take(results[3])


def test_workers_of_one_job_are_bounded() -> None:
    parts = Parts()
    for number in range(3 * MAX_RUNS):
        parts.take(run_of([2], f"w{number}")[0])
    assert len(parts._runs) == MAX_RUNS
    assert passed_on(parts)[1] == TOKENS[:2]


def test_parts_that_were_lost_and_come_again_complete_the_text() -> None:
    parts = Parts()
    sent = run_of([5, 10, 15, 20], "w")
    take_all(parts, sent[:1] + sent[3:4])
    take_all(parts, sent[:4] + sent[4:])
    assert passed_on(parts) == (TEXT, TOKENS)
