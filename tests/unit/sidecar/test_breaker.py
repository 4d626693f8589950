"""Versions whose jobs kill workers are refused for a while, and no others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sidecar.queueing.breaker import FIRST_REFUSAL_S, LONGEST_REFUSAL_S, MAX_DIGESTS, WINDOW_S, Breaker
from wire.errors import Code

BAD, GOOD = "b" * 64, "a" * 64


def test_two_deaths_refuse_a_version_for_a_minute_and_the_next_one_for_two() -> None:
    breaker = Breaker()
    assert breaker.died(BAD, "worker cpu died", 0.0) is None
    assert breaker.refusal(BAD, 1.0) is None
    assert breaker.died(BAD, "worker cpu died again", 10.0) == 10.0 + FIRST_REFUSAL_S
    refusal = breaker.refusal(BAD, 20.0)
    assert refusal is not None
    assert refusal.code is Code.POISON_JOB
    assert BAD in refusal.message
    assert "50 s more" in refusal.message
    assert "worker cpu died again" in refusal.message
    assert breaker.refused(20.0) == {BAD: 70.0}
    assert breaker.refusal(GOOD, 20.0) is None
    assert breaker.refusal(BAD, 70.0) is None, "then it is tried again"
    assert breaker.died(BAD, "and again", 80.0) == 80.0 + 2 * FIRST_REFUSAL_S


def test_what_happened_long_ago_is_forgotten() -> None:
    breaker = Breaker()
    breaker.died(BAD, "x", 0.0)
    assert breaker.died(BAD, "x", WINDOW_S + 1.0) is None
    breaker.died(BAD, "x", WINDOW_S + 2.0)
    late = WINDOW_S * 3 + FIRST_REFUSAL_S
    assert breaker.died(BAD, "x", late) is None


def test_a_job_on_the_base_model_alone_refuses_nothing() -> None:
    breaker = Breaker()
    assert all(breaker.died(None, "x", float(now)) is None for now in range(5))
    assert breaker.refused(5.0) == {}


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100)), max_size=60))
def test_a_refusal_always_ends(deaths: list[tuple[int, float]]) -> None:
    breaker, now = Breaker(), 0.0
    for digest, gap_s in deaths:
        now += gap_s
        until = breaker.died(str(digest), "x", now)
        assert until is None or now < until <= now + LONGEST_REFUSAL_S
    assert breaker.refused(now + LONGEST_REFUSAL_S) == {}


def test_memory_is_bounded() -> None:
    breaker = Breaker()
    for number in range(MAX_DIGESTS + 50):
        breaker.died(str(number), "x", 0.0)
        breaker.died(str(number), "x", 0.0)
    assert len(breaker.refused(1.0)) == MAX_DIGESTS
