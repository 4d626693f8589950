"""What an idle worker takes over from a busy one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sidecar.dispatch.stealing import LEAST_TOKENS, UNBEGUN_S, Given, choose_stolen

HOLDS = frozenset({"a"})
jobs = st.lists(
    st.builds(
        Given,
        id=st.uuids().map(str),
        model=st.sampled_from(["a", "b"]),
        adapter=st.sampled_from([None, "x", "y"]),
        tokens=st.integers(1, 500),
        waited_s=st.floats(0, 1),
    ),
    max_size=40,
)


@given(jobs, st.integers(0, 10_000))
def test_at_most_half_moves_and_only_what_fits_the_idle_worker(given_jobs: list[Given], room: int) -> None:
    stolen = choose_stolen(given_jobs, HOLDS, frozenset({"x"}), room)
    by_id = {one.id: one for one in given_jobs}
    taken = [by_id[one] for one in stolen]
    movable = [one for one in given_jobs if one.model == "a" and one.waited_s >= UNBEGUN_S]
    assert all(one in movable for one in taken)
    total = sum(one.tokens for one in taken)
    assert total <= min(room, sum(one.tokens for one in movable) // 2)
    if sum(one.tokens for one in movable) < LEAST_TOKENS:
        assert not taken


def test_jobs_whose_adapter_is_there_go_first() -> None:
    waiting = [Given(str(number), "a", "x" if number % 2 else "y", 100, 0.5) for number in range(10)]
    stolen = choose_stolen(waiting, HOLDS, frozenset({"x"}), 10_000)
    assert {"1", "3", "5", "7", "9"} == set(stolen)
