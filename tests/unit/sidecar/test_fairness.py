"""Shares between flows: nobody who waits falls behind by more than an item, and absence earns nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fabric.fairness import KEPT_FLOWS, FairShare, TenantShares

LARGEST = 100


@given(st.lists(st.integers(1, LARGEST), min_size=30, max_size=200), st.integers(2, 6))
def test_flows_that_always_wait_get_the_same_but_for_one_item(items: list[int], flows: int) -> None:
    share, got = FairShare(), dict.fromkeys(map(str, range(flows)), 0)
    for number, flow in enumerate(got):
        share.enter(flow, list(got)[:number])
    for tokens in items:
        flow = min(got, key=share.start)
        share.charge(flow, tokens)
        got[flow] += tokens
    assert max(got.values()) - min(got.values()) <= LARGEST


@given(st.integers(1, 500), st.integers(1, 20))
def test_a_flow_that_was_away_neither_catches_up_nor_pays(before: int, waits: int) -> None:
    share = FairShare()
    share.enter("steady", [])
    for _ in range(before):
        share.charge("steady", 10)
    share.enter("new", ["steady"])
    got = {"steady": 0, "new": 0}
    for _ in range(2 * waits):
        flow = min(got, key=share.start)
        share.charge(flow, 10)
        got[flow] += 10
    assert abs(got["steady"] - got["new"]) <= 10
    # And back: what "steady" had while it was alone is no debt once another flow began where it stood.
    lonely = FairShare()
    lonely.enter("a", [])
    for _ in range(before):
        lonely.charge("a", 10)
    lonely.enter("b", [])
    lonely.enter("a", ["b"])
    assert abs(lonely.start("a") - lonely.start("b")) <= 10


def test_memory_of_flows_is_bounded() -> None:
    shares = TenantShares()
    for number in range(3 * KEPT_FLOWS):
        shares.enter(f"t{number}", f"a{number}", {})
        shares.charge(f"t{number}", f"a{number}", 10)
    assert len(shares._adapters) <= KEPT_FLOWS
    assert len(shares._tenants._ends) <= KEPT_FLOWS + 1
