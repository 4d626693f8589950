"""When a dead child comes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controlplane.stack.backoff import Backoff, BackoffRule

RULE = BackoffRule(first_s=0.5, factor=2.0, longest_s=30.0, healthy_s=20.0)


def waits_after(lives_s: list[float]) -> list[float]:
    backoff, waits = Backoff(RULE), []
    for lived_s in lives_s:
        backoff = backoff.after_death(lived_s)
        waits.append(backoff.wait_s)
    return waits


def test_no_wait_before_the_first_death() -> None:
    assert Backoff(RULE).wait_s == 0


def test_doubles_up_to_the_longest() -> None:
    assert waits_after([0.1] * 8) == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_a_healthy_life_starts_over() -> None:
    assert waits_after([0.1, 0.1, 0.1, 25.0, 0.1]) == [0.5, 1, 2, 0.5, 1]


def test_thousands_of_deaths_stay_at_the_longest() -> None:
    assert waits_after([0.0] * 5000)[-1] == RULE.longest_s


@given(st.lists(st.floats(0, 1000), min_size=1))
def test_wait_is_bounded_and_never_shrinks_without_a_healthy_life(lives_s: list[float]) -> None:
    waits = waits_after(lives_s)
    assert all(RULE.first_s <= wait <= RULE.longest_s for wait in waits)
    for before, after, lived_s in zip(waits, waits[1:], lives_s[1:], strict=False):
        assert after == RULE.first_s if lived_s >= RULE.healthy_s else after >= before
