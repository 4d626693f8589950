"""Properties of eviction: slots and host memory."""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workers.packing.artifact import AdapterWeights, PreparedAdapter
from workers.packing.host import HostTier
from workers.packing.slots import SlotTable

calm = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
names = st.sampled_from("abcdefgh")


@calm
@given(st.integers(1, 5), st.lists(st.tuples(names, st.sets(names), st.booleans()), max_size=60))
def test_slots_never_give_up_an_adapter_in_use_or_pinned(slots: int, steps: list[tuple[str, set[str], bool]]) -> None:
    table = SlotTable(slots)
    for now, (name, in_use, pinned) in enumerate(steps):
        if name in table:
            table.touch(name, now=now)
        else:
            if not table.has_free:
                victim = table.victim(in_use)
                if victim is None:
                    assert all(one.pinned or one.digest in in_use for one in table.residents())
                    continue
                held = table.get(victim)
                assert held is not None
                assert not held.pinned
                assert victim not in in_use
                evictable = [one for one in table.residents() if not one.pinned and one.digest not in in_use]
                assert held is evictable[0]
                table.release(victim)
            table.occupy(name, size_bytes=1, now=now)
        resident = table.get(name)
        assert resident is not None
        resident.pinned = pinned
        taken = [one.slot for one in table.residents()]
        assert len(taken) == len(set(taken)) <= slots
        assert 0 <= table.room(in_use) <= slots


def test_one_of_a_scan_gives_up_its_slot_before_those_in_steady_use() -> None:
    table = SlotTable(3)
    for now in range(0, 100, 2):
        for name in ("a", "b", f"scan{now}"):
            if name not in table:
                if not table.has_free:
                    victim = table.victim({name})
                    assert victim is not None
                    assert victim.startswith("scan")
                    table.release(victim)
                table.occupy(name, size_bytes=1, now=now)
            table.touch(name, now=now, hits=50 if name.startswith("scan") else 1)


def prepared(name: str, size: int) -> PreparedAdapter:
    weights = AdapterWeights(1, torch.zeros(1, size), torch.zeros(1, size))
    return PreparedAdapter(name, {"layer": weights}, rank=1, size_bytes=8 * size)


@calm
@given(st.lists(st.tuples(names, st.integers(1, 40)), max_size=60), st.integers(0, 600))
def test_the_host_tier_counts_its_bytes_and_keeps_the_newest(steps: list[tuple[str, int]], limit: int) -> None:
    tier = HostTier(limit)
    for name, size in steps:
        tier.put("model", prepared(name, size))
        assert tier.size_bytes <= limit
        assert (tier.get("model", name) is not None) == (8 * size <= limit)
        kept = [tier.get("model", other) for other in "abcdefgh"]
        assert tier.size_bytes == sum(one.size_bytes for one in kept if one is not None)
