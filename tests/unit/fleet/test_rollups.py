"""A roll-up says what its points say: totals add up, means are means of what was known, unknown stays unknown."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from fleet.telemetry.points import Point, Second
from fleet.telemetry.rollups import complete_minutes, roll_up
from tests.unit.fleet.samples import device, sample

BASE = 1_000_020  # the start of a minute

share = st.none() | st.floats(0, 1)
seconds = st.dictionaries(
    st.integers(BASE, BASE + 239),
    st.tuples(share, st.floats(0, 1), st.none() | st.integers(0, 2**40), st.integers(0, 500), st.integers(0, 9)),
    max_size=60,
)


def _point(at: int, figures: tuple[float | None, float, int | None, int, int]) -> Point:
    utilization, busy, memory, requests, errors = figures
    second = Second(at)
    second.add(
        sample(
            at=float(at),
            busy=busy,
            requests=requests,
            tokens=requests * 3,
            errors=errors,
            device=device(utilization=utilization, memory_used_bytes=memory),
        )
    )
    return second.point()


@given(seconds, st.randoms(use_true_random=False))
def test_rollup_agrees_with_its_points(
    figures: dict[int, tuple[float | None, float, int | None, int, int]], order: random.Random
) -> None:
    points = [_point(at, row) for at, row in figures.items()]
    # a ring is read in any order, and a second may have been written twice
    shuffled = points + points[:5]
    order.shuffle(shuffled)
    minutes = [BASE, BASE + 60, BASE + 120]
    found = {rollup.minute: rollup for rollup in roll_up(shuffled, minutes=minutes)}
    for minute in minutes:
        inside = [row for at, row in figures.items() if minute <= at < minute + 60]
        if not inside:
            assert minute not in found
            continue
        rollup = found[minute]
        assert rollup.seconds == len(inside)
        assert rollup.requests == sum(row[3] for row in inside)
        assert rollup.tokens == 3 * rollup.requests
        assert rollup.errors == sum(row[4] for row in inside)
        assert rollup.busy is not None
        assert math.isclose(rollup.busy, math.fsum(row[1] for row in inside) / len(inside), abs_tol=1e-12)
        known = [row[0] for row in inside if row[0] is not None]
        if known:
            assert rollup.utilization is not None
            assert math.isclose(rollup.utilization, math.fsum(known) / len(known), abs_tol=1e-12)
        else:
            assert rollup.utilization is None
        assert (rollup.memory_used_bytes is None) == all(row[2] is None for row in inside)


@given(st.floats(1e9, 2e9), st.integers(0, 30))
def test_only_whole_minutes_inside_the_window_are_rolled_up(now: float, done_minutes_ago: int) -> None:
    after = (int(now) // 60 - done_minutes_ago) * 60
    minutes = complete_minutes(now, after=after, window_s=900)
    assert all(minute % 60 == 0 for minute in minutes)
    assert all(minute > after for minute in minutes)
    assert all(minute + 60 + 5 <= now + 1 for minute in minutes)
    assert all(minute > now - 900 - 1 for minute in minutes)
    assert complete_minutes(now, after=minutes[-1] if minutes else after, window_s=900) == []
