"""Properties of the eviction policy, and its hit rate beside plain LRU on the same requests."""

from __future__ import annotations

import math
import random
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.residency.eviction import HeldModel, plan_room, worth
from workers.residency.uses import Uses

models = st.lists(
    st.builds(
        HeldModel,
        id=st.uuids().map(str),
        size_bytes=st.integers(1, 100),
        uses=st.floats(-5, 50),
        reload_s=st.floats(0.1, 60),
        pinned=st.booleans(),
        busy=st.booleans(),
        fresh=st.booleans(),
    ),
    max_size=8,
)


@given(models, st.integers(0, 200), st.integers(1, 400))
def test_models_leave_only_as_needed_and_never_a_pinned_or_fresh_one(
    held: list[HeldModel], needed: int, limit: int
) -> None:
    plan = plan_room(held, needed_bytes=needed, limit_bytes=limit)
    total = sum(model.size_bytes for model in held)
    movable = sum(model.size_bytes for model in held if not model.pinned)
    if plan is None:
        assert total - movable + needed > limit
        return
    by_id = {model.id: model for model in held}
    leaving = [by_id[one] for one in (*plan.evict, *plan.drain)]
    assert not any(model.pinned or model.fresh for model in leaving)
    assert not any(by_id[one].busy for one in plan.evict)
    assert all(by_id[one].busy for one in plan.drain)
    if plan.later:
        assert leaving == []
        assert total - sum(model.size_bytes for model in held if not (model.pinned or model.fresh)) + needed > limit
        return
    left = total - sum(model.size_bytes for model in leaving) + needed
    assert left <= limit or (not leaving and total + needed <= limit)
    assert all(left + model.size_bytes > limit for model in leaving), "a model left for nothing"
    if total + needed <= limit:
        assert leaving == []


@given(models, st.integers(1, 200))
def test_of_models_of_one_size_the_least_worth_leave(held: list[HeldModel], needed: int) -> None:
    same = [HeldModel(one.id, 10, one.uses, one.reload_s, busy=one.busy) for one in held]
    plan = plan_room(same, needed_bytes=needed, limit_bytes=10 * len(same))
    if plan is None:
        return
    leaving = {*plan.evict, *plan.drain}
    stay = [worth(one) for one in same if one.id not in leaving]
    assert max((worth(one) for one in same if one.id in leaving), default=-math.inf) <= min(stay, default=math.inf)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 100), st.integers(1, 9)), max_size=30))
def test_counts_decay_by_half_each_half_life(steps: list[tuple[str, float, int]]) -> None:
    uses = Uses(half_life_s=10.0)
    now = 0.0
    expected = dict.fromkeys("abc", 0.0)
    for key, pause, hits in steps:
        now += pause
        expected = {one: count * 0.5 ** (pause / 10.0) for one, count in expected.items()}
        expected[key] += hits
        uses.add(key, now=now, hits=hits)
    for key, count in expected.items():
        assert uses.count(key, now=now) == pytest.approx(count, rel=1e-6, abs=1e-12)


def test_what_is_remembered_is_bounded_and_the_most_used_stay() -> None:
    uses = Uses(remembered=50)
    for number in range(1000):
        uses.add("hot", now=float(number))
        uses.add(f"scan{number}", now=float(number))
    assert len(uses) <= 100
    assert uses.rank("hot") > uses.rank("scan999")


def _lru_hits(requests: list[str], slots: int) -> int:
    held: OrderedDict[str, None] = OrderedDict()
    hits = 0
    for key in requests:
        hits += key in held
        held[key] = None
        held.move_to_end(key)
        if len(held) > slots:
            held.popitem(last=False)
    return hits


def _policy_hits(requests: list[str], slots: int) -> int:
    uses, held, hits = Uses(), set[str](), 0
    for now, key in enumerate(requests):
        hits += key in held
        if key not in held:
            models = [HeldModel(one, 1, uses.rank(one), 1.0) for one in sorted(held)]
            plan = plan_room(models, needed_bytes=1, limit_bytes=slots)
            assert plan is not None
            held -= set(plan.evict)
            held.add(key)
        uses.add(key, now=float(now))
        assert len(held) <= slots
    return hits


def test_more_hits_than_lru_on_a_zipf_mix_of_twelve_in_room_for_four() -> None:
    chance = random.Random(3)
    names = [f"model{number}" for number in range(12)]
    requests = chance.choices(names, [1 / (rank + 1) for rank in range(12)], k=5000)
    assert _policy_hits(requests, 4) > 1.15 * _lru_hits(requests, 4)


def test_a_scan_does_not_flush_what_is_in_steady_use() -> None:
    requests: list[str] = []
    for turn in range(200):
        requests += ["a", "b", "c", f"scan{turn}-1", f"scan{turn}-2"]
    assert _lru_hits(requests, 4) == 0
    assert _policy_hits(requests, 4) > 550


def test_a_hot_set_that_moved_is_followed() -> None:
    old, new = ["a", "b", "c", "d"] * 100, ["e", "f", "g", "h"] * 300
    assert _policy_hits(old + new, 4) > 1000
