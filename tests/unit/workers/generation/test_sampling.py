"""The next token: what temperature, top-k, top-p, penalties and seeds do."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wire.jobs import Sampling
from workers.generation.sampling import Choice, Draw, choose_tokens, seed_of, uniform


def draw(number: int = 0, *, seed: int = 1, counts: dict[int, int] | None = None, **sampling: Any) -> Draw:
    return Draw(Sampling(**sampling), seed, number, counts or {})


def tokens_of(logits: torch.Tensor, draws: list[Draw]) -> list[int]:
    found = choose_tokens(logits, draws)
    assert all(choice is not None for choice in found)
    return [choice.token for choice in found if choice is not None]


def test_draws_follow_the_distribution() -> None:
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    draws = [draw(number) for number in range(4000)]
    counts = Counter(tokens_of(probabilities.log().expand(4000, 4), draws))
    for token, probability in enumerate(probabilities.tolist()):
        # five standard deviations: the seeds are fixed, so this passes or fails for good
        assert abs(counts[token] / 4000 - probability) < 5 * (probability * (1 - probability) / 4000) ** 0.5


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-8, 8, width=32), min_size=2, max_size=40, unique=True),
    st.integers(0, 45),
    st.floats(0.05, 1.0),
    st.floats(0.2, 3.0),
)
def test_no_token_outside_of_top_k_and_top_p_is_ever_drawn(
    scores: list[float], top_k: int, top_p: float, temperature: float
) -> None:
    heated = torch.tensor(scores).double() / temperature
    ranked = heated.argsort(descending=True)[: top_k or len(scores)]
    shares = torch.softmax(heated[ranked], 0)
    before = shares.cumsum(0) - shares
    # a thousandth of slack: what float32 and float64 disagree on is no fault
    allowed = set(ranked[before < top_p + 1e-3].tolist())
    draws = [draw(number, top_k=top_k, top_p=top_p, temperature=temperature) for number in range(50)]
    assert set(tokens_of(torch.tensor(scores).expand(50, -1), draws)) <= allowed


def test_a_flat_distribution_wider_than_the_candidates_keeps_its_nucleus() -> None:
    logits = torch.zeros(300, 5000)
    found = tokens_of(logits, [draw(number, top_p=0.9) for number in range(300)])
    assert len(set(found)) > 250


def test_a_row_s_draw_depends_on_nothing_of_its_batch() -> None:
    torch.manual_seed(0)
    logits = torch.randn(16, 300)
    draws = [draw(row, seed=row, top_p=0.9 if row % 2 else 1.0, temperature=1.2) for row in range(16)]
    together = tokens_of(logits, draws)
    assert together == [tokens_of(logits[row : row + 1], [draws[row]])[0] for row in range(16)]
    assert together[::-1] == tokens_of(logits.flip(0), draws[::-1])


def test_seeds_and_numbers_give_different_points() -> None:
    points = [uniform(seed, number) for seed in range(40) for number in range(40)]
    assert len(set(points)) == 1600
    assert 0.45 < sum(points) / 1600 < 0.55
    assert seed_of("one") == seed_of("one") != seed_of("other")


@pytest.mark.parametrize("penalties", [{"presence_penalty": 2.0}, {"frequency_penalty": 1.0}])
def test_penalties_make_tokens_that_were_there_less_likely(penalties: dict[str, Any]) -> None:
    logits = torch.tensor([[3.0, 2.0, 1.5]])
    for counts, expected in (({}, 0), ({0: 2}, 1), ({0: 2, 1: 2}, 2)):
        assert tokens_of(logits, [draw(temperature=0.0, counts=counts, **penalties)]) == [expected]


def test_logprobs_are_those_of_the_model_whatever_chose_the_token() -> None:
    probabilities = torch.tensor([[0.6, 0.3, 0.1]])
    (choice,) = choose_tokens(
        probabilities.log(), [draw(temperature=0.0, logprobs=2, counts={0: 1}, presence_penalty=9)]
    )
    assert isinstance(choice, Choice)
    assert choice.token == 1
    assert choice.logprob == pytest.approx(float(torch.tensor(0.3).log()), abs=1e-5)
    assert [token for token, _ in choice.top] == [0, 1]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_fails_alone(bad: float) -> None:
    logits = torch.zeros(3, 10)
    logits[1, 4] = bad
    logits[2, 7] = 5.0
    first, second, third = choose_tokens(logits, [draw(temperature=0.0)] * 3)
    assert first is not None
    assert second is None
    assert third == Choice(7)
