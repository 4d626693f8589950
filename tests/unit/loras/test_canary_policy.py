"""When a canary is held: enough requests, and a rate or a p95 that chance does not explain."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loras.metrics.figures import Figures
from loras.metrics.histogram import BUCKETS, percentile_ms, slower_than
from loras.metrics.policy import Bounds, judge, wilson
from wire.usage import LATENCY_BOUNDS_MS

BOUNDS = Bounds()


def served(requests: int, failed: int = 0, *, bucket: int = 2, slow: int = 0) -> Figures:
    """Figures with all answers in one latency bucket but ``slow`` of them, which took up to 2 s."""
    latency = [0] * BUCKETS
    latency[bucket] = requests - failed - slow
    latency[LATENCY_BOUNDS_MS.index(2000.0)] += slow
    return Figures(requests=requests, failed={"internal_error": failed} if failed else {}, latency=latency)


def test_a_failing_canary_is_held_and_named_with_its_numbers() -> None:
    verdict = judge({1: 90, 2: 10}, {1: served(180), 2: served(20, 10)}, BOUNDS)
    assert verdict is not None
    assert verdict.number == 2
    assert "10 of 20 requests failed (internal_error)" in verdict.reason
    assert "@1 failed 0 of 180" in verdict.reason


@pytest.mark.parametrize(
    ("split", "figures"),
    [
        # too few requests say nothing, however bad
        ({1: 90, 2: 10}, {1: served(180), 2: served(19, 19)}),
        # one failure in twenty is within what chance explains
        ({1: 90, 2: 10}, {1: served(180), 2: served(20, 1)}),
        # both fail: the canary is not to blame
        ({1: 90, 2: 10}, {1: served(180, 120), 2: served(20, 14)}),
        # the majority fails: it is never held
        ({1: 90, 2: 10}, {1: served(180, 90), 2: served(20)}),
        # without traffic on the majority only a canary that fails more often than not is held
        ({1: 90, 2: 10}, {2: served(20, 9)}),
        # one version alone is no canary
        ({2: 100}, {2: served(100, 100)}),
        ({1: 90, 2: 10}, {}),
    ],
)
def test_a_canary_goes_on(split: dict[int, int], figures: dict[int, Figures]) -> None:
    assert judge(split, figures, BOUNDS) is None


def test_a_slow_canary_is_held_but_a_few_slow_answers_are_not() -> None:
    assert judge({1: 90, 2: 10}, {1: served(400), 2: served(100, slow=8)}, BOUNDS) is None
    verdict = judge({1: 90, 2: 10}, {1: served(400), 2: served(100, slow=40)}, BOUNDS)
    assert verdict is not None
    assert "p95" in verdict.reason
    # a little slower is within the bound of twice the p95, or 50 ms more
    assert judge({1: 90, 2: 10}, {1: served(400, bucket=2), 2: served(100, bucket=3)}, BOUNDS) is None


def test_of_two_bad_canaries_the_worse_goes_first() -> None:
    figures = {1: served(400), 2: served(50, 20), 3: served(50, 45)}
    assert judge({1: 80, 2: 10, 3: 10}, figures, BOUNDS) == judge({1: 80, 3: 10, 2: 10}, figures, BOUNDS)
    verdict = judge({1: 80, 2: 10, 3: 10}, figures, BOUNDS)
    assert verdict is not None
    assert verdict.number == 3


def test_a_good_canary_is_hardly_ever_held_by_chance() -> None:
    """Equal rates of 2 %, judged after every request: at most a few in a hundred end held."""
    chance, held = random.Random(7), 0
    for _ in range(100):
        failed = 0
        for count in range(1, 201):
            failed += chance.random() < 0.02
            if judge({1: 90, 2: 10}, {1: served(1800, 36), 2: served(count, failed)}, BOUNDS):
                held += 1
                break
    assert held <= 6


@given(st.integers(0, 500), st.integers(0, 500))
def test_the_interval_holds_the_share_and_shrinks(successes: int, more: int) -> None:
    trials = successes + more
    lower, upper = wilson(successes, trials)
    assert 0 <= lower <= upper <= 1
    if trials:
        assert lower - 1e-9 <= successes / trials <= upper + 1e-9
        wider = wilson(successes * 4, trials * 4)
        assert wider[1] - wider[0] <= upper - lower + 1e-9


@given(st.lists(st.integers(0, 50), min_size=BUCKETS, max_size=BUCKETS))
def test_percentiles_are_in_order_and_within_the_bounds(counts: list[int]) -> None:
    found = [percentile_ms(counts, share) for share in (0.1, 0.5, 0.95)]
    if not sum(counts):
        assert found == [None, None, None]
        return
    known = [value for value in found if value is not None]
    assert known == sorted(known)
    assert known[0] >= 0
    assert known[-1] <= LATENCY_BOUNDS_MS[-1]
    assert slower_than(counts, 0.0) == sum(counts[1:])
