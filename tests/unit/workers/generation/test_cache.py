"""Slots of keys and values: whatever comes and goes, each text finds its own, and what nobody uses is zero."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.generation.cache import KeyValueCache, LayerShape, Lease, Slab
from workers.generation.prefixes import Prefixes

SHAPES = [LayerShape(2, 3, 2), LayerShape(1, 3, 2)]
TOKEN_BYTES = 4 * (2 * 5 + 5)


def new_cache(tokens: int, most: int = 1000) -> KeyValueCache:
    return KeyValueCache(
        SHAPES, dtype=torch.float32, device=torch.device("cpu"), limit_bytes=tokens * TOKEN_BYTES, most_tokens=most
    )


def fill(lease: Lease, mark: float, tokens: int) -> None:
    for tensor in (*lease.slab.keys, *lease.slab.values):
        tensor[lease.row, :, :tokens] = mark
    lease.written = max(lease.written, tokens)


def check(cache: KeyValueCache, held: dict[float, Lease], lengths: dict[float, int]) -> None:
    assert cache.size_bytes <= cache.limit_bytes
    used = {(id(lease.slab), lease.row) for lease in held.values()}
    assert len(used) == len(held)
    for mark, lease in held.items():
        for tensor in (*lease.slab.keys, *lease.slab.values):
            assert (tensor[lease.row, :, : lengths[mark]] == mark).all()
            assert (tensor[lease.row, :, lengths[mark] :] == 0).all()
    for slab in cache.slabs:
        assert [lease.row for lease in slab.leases] == list(range(len(slab.leases))), "a gap between rows in use"
        for tensor in (*slab.keys, *slab.values):
            assert (tensor[len(slab.leases) :] == 0).all()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["lease", "grow", "release"]), st.integers(1, 900)), max_size=30))
def test_each_text_keeps_its_own_while_others_come_grow_and_go(actions: list[tuple[str, int]]) -> None:
    cache = new_cache(6000)
    held: dict[float, Lease] = {}
    lengths: dict[float, int] = {}
    for mark, (action, number) in enumerate(actions, start=1):
        if action == "lease":
            lease = cache.lease(number)
            if lease is not None:
                held[mark], lengths[mark] = lease, number
                fill(lease, mark, number)
        elif held:
            chosen = list(held)[number % len(held)]
            if action == "release":
                cache.release(held.pop(chosen))
            else:
                tokens = min(1000, lengths[chosen] + number)
                if cache.grow(held[chosen], tokens):
                    lengths[chosen] = tokens
                    fill(held[chosen], chosen, tokens)
        check(cache, held, lengths)


def test_memory_of_ended_texts_goes_before_a_new_one_waits() -> None:
    cache = new_cache(1500)
    prefixes = Prefixes(cache.limit_bytes)
    cache.reclaim = prefixes.shrink
    lease = cache.lease(600)
    assert lease is not None
    fill(lease, 1.0, 600)
    for first in (0, 1000):
        prefixes.keep(None, range(first, first + 200), lease, free_bytes=500 * TOKEN_BYTES)
    assert prefixes.size_bytes == 400 * TOKEN_BYTES
    others = [cache.lease(128) for _ in range(4)]
    assert [other is not None for other in others] == [True, True, True, False]
    assert prefixes.size_bytes == 0
    assert cache.size_bytes == (1000 + 3 * 128) * TOKEN_BYTES
    cache.release(lease)
    assert cache.lease(512) is not None, "a slab that nobody uses was not given back"


def test_a_text_as_long_as_the_budget_fits_alone() -> None:
    cache = new_cache(700)
    assert cache.most_tokens == 700
    lease = cache.lease(700)
    assert lease is not None
    assert lease.slab.width == 700


def test_beginnings_kept_are_the_latest_within_the_bytes() -> None:
    cache = new_cache(4000)
    prefixes = Prefixes(100 * TOKEN_BYTES)
    lease = cache.lease(200)
    assert lease is not None

    def keep(owner: str | None, first: int, tokens: int) -> None:
        fill(lease, float(first), tokens)
        prefixes.keep(owner, range(first, first + tokens), lease, free_bytes=1 << 30)

    def restored(owner: str | None, first: int, tokens: int) -> int:
        target = cache.lease(200)
        assert target is not None
        count = prefixes.restore(owner, range(first, first + tokens), target)
        assert all((keys[target.row, :, :count] == first).all() for keys in target.slab.keys)
        cache.release(target)
        return count

    keep(None, 1, 40)
    keep(None, 1000, 40)
    assert restored(None, 1, 60) == 40
    assert restored("other version", 1, 60) == 0
    keep("version", 2000, 40)
    assert prefixes.size_bytes <= 100 * TOKEN_BYTES
    assert restored(None, 1000, 40) == 0, "the least recently used stayed"
    assert restored(None, 1, 40) == 40
    # a longer text takes the place of its own beginning
    fill(lease, 1.0, 60)
    prefixes.keep(None, range(1, 61), lease, free_bytes=1 << 30)
    assert restored(None, 1, 100) == 60
    assert prefixes.size_bytes == 100 * TOKEN_BYTES
    keep(None, 5000, 101)
    assert restored(None, 1, 100) == 60, "a text above all bytes displaced others"


@pytest.mark.parametrize("tokens", [1, 128, 129, 1000])
def test_a_row_is_at_least_as_wide_as_asked(tokens: int) -> None:
    lease = new_cache(10_000).lease(tokens)
    assert lease is not None
    assert tokens <= lease.slab.width <= max(128, 2 * tokens)


def test_a_device_with_less_than_the_budget_says_has_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = new_cache(10_000)

    def short(*_: object) -> Slab:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(cache, "_allocate", short)
    assert cache.lease(10) is None
    monkeypatch.undo()
    assert cache.lease(10) is not None
