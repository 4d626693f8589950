"""Asks never exceed the room, and every model is listened to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sidecar.queueing.memory import TimedMemory
from sidecar.queueing.room import TokenAverage, room_jobs, share_asks

weights = st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0, 1000), max_size=8)


@given(st.integers(-5, 500), weights, st.integers(0, 100))
def test_shares_add_up_to_the_room(jobs: int, models: dict[str, float], turn: int) -> None:
    shares = share_asks(jobs, models, turn)
    assert sum(shares.values()) == (max(0, jobs) if models else 0) or jobs < len(models)
    assert sum(shares.values()) <= max(0, jobs)
    assert all(share >= 1 for share in shares.values())
    if jobs >= len(models) > 0:
        assert set(shares) == set(models)


@given(st.integers(1, 8), st.integers(1, 8))
def test_with_few_asks_every_model_gets_its_turn(jobs: int, models: int) -> None:
    names = dict.fromkeys("abcdefgh"[:models], 1.0)
    heard = set().union(*(share_asks(jobs, names, turn) for turn in range(models)))
    assert heard == set(names)


@given(st.lists(st.integers(-10, 100_000), max_size=8), st.integers(0, 200_000), st.lists(st.integers(0, 5_000)))
def test_asked_jobs_fit_the_room_left(rooms: list[int], ready: int, estimates: list[int]) -> None:
    average = TokenAverage()
    for tokens in estimates:
        average.add(tokens)
    jobs = room_jobs(rooms, ready, average)
    left = sum(max(0, room) for room in rooms) - ready
    assert jobs >= 0
    assert (jobs == 0) == (left <= 0)
    assert (jobs - 1) * average.tokens < max(left, 1)


def test_memory_is_bounded_in_time_and_number() -> None:
    memory: TimedMemory[int] = TimedMemory(keep_s=10, max_items=2)
    for number in range(3):
        memory.put(str(number), number, now=float(number))
    assert memory.get("0", 3.0) is None
    assert memory.get("1", 3.0) == 1
    assert memory.since(2.0) == [2]
    assert memory.get("2", 13.0) is None
    assert len(memory) == 0
