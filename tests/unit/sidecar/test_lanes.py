"""Every lane has exactly one home, and few lanes move when machines come or go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sidecar.queueing.lanes import home_lanes
from wire import subjects
from wire.subjects import LANE, LANES, lane_of

machines = st.sets(st.text("abcdef", min_size=1, max_size=4), min_size=1, max_size=6)
LANE_NAMES = {str(number) for number in range(1, LANES + 1)}


@given(machines, st.text(max_size=8))
def test_each_lane_has_one_home_and_lane_0_is_everybodys(names: set[str], model: str) -> None:
    homes = {name: home_lanes(model, name, names - {name}) for name in names}
    assert all(LANE in lanes for lanes in homes.values())
    if len(names) == 1:
        assert homes == {name: {LANE} for name in names}
        return
    taken = [lane for lanes in homes.values() for lane in lanes - {LANE}]
    assert sorted(taken) == sorted(LANE_NAMES)


@given(machines, st.text("xyz", min_size=1, max_size=3), st.text(max_size=8))
def test_a_machine_that_comes_takes_lanes_and_moves_none_between_others(names: set[str], new: str, model: str) -> None:
    if len(names) < 2:
        return
    for name in names:
        assert home_lanes(model, name, (names | {new}) - {name}) <= home_lanes(model, name, names - {name})


@given(st.text("0123456789abcdef", min_size=64, max_size=64), st.integers(0, 50))
def test_an_adapter_has_one_lane_for_any_number_of_machines_above_one(digest: str, count: int) -> None:
    assert lane_of(None, count) == LANE
    if count < 2:
        assert lane_of(digest, count) == LANE
    else:
        assert lane_of(digest, count) == lane_of(digest, 2)
        assert lane_of(digest, count) in LANE_NAMES


def test_lanes_have_consumers_of_their_own_with_legal_names() -> None:
    names = {
        subjects.work_consumer("p", model, lane) for model in ("m", "m__1", "m~1", "a/b@3") for lane in (LANE, "1", "2")
    }
    assert len(names) == 12
    assert not any(char in name for name in names for char in ". *>/\\=")
