"""Memory of slots: bounded in bytes, nothing evicted in vain, whole after an allocation that failed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.artifacts import random_adapter
from wire.errors import Code, ShoalError
from wire.registry import ModelRecord
from workers.models import LoadedModel, ModelOptions, load_model
from workers.models.protocol import Vectors
from workers.packing.artifact import AdapterWeights, PreparedAdapter
from workers.packing.banks import rank_bucket
from workers.packing.layers import PackedLinear

QUERY = "encoder.layer.0.attention.self.query"
PAIR_BYTES = 4 * (32 + 32)
TEXT = "a small shoal turns"


def make(model: LoadedModel, ranks: dict[str, int], *, seed: int) -> PreparedAdapter:
    """A random adapter, prepared for ``model``."""
    one = random_adapter(model.adapters.shapes, ranks, seed=seed, strength=4.0)
    modules = {
        path: AdapterWeights(part.rank, part.a, (part.b * part.scale).t().contiguous())
        for path, part in one.parts.items()
    }
    return PreparedAdapter(one.digest, modules, max(ranks.values()), size_bytes=1)


def banks_bytes(model: LoadedModel) -> int:
    """What the banks really hold."""
    layers = [layer for layer in model.kind.module.modules() if isinstance(layer, PackedLinear)]
    return sum(4 * (bank.a.numel() + bank.b.numel()) for layer in layers for bank in layer.banks.values())


def residents(model: LoadedModel) -> set[str]:
    return set(model.adapters.table.digests())


def vector(model: LoadedModel, digest: str) -> Vectors:
    found: Vectors = model.embed([TEXT], [digest])[0]
    return found


def load(model: LoadedModel, one: PreparedAdapter, in_use: set[str]) -> list[str] | Code:
    """The evicted adapters, or why it was refused."""
    try:
        return model.load_adapter(one.digest, one, in_use=in_use)
    except ShoalError as error:
        return error.info.code


def test_an_adapter_above_the_limit_is_unloadable_and_costs_nobody_a_slot(tiny_record: ModelRecord) -> None:
    model = load_model(tiny_record, options=ModelOptions(slots=2, adapter_bytes=2 * 8 * PAIR_BYTES))
    small = [make(model, {QUERY: 8}, seed=seed) for seed in (1, 2)]
    for one in small:
        model.load_adapter(one.digest, one)
    with pytest.raises(ShoalError) as raised:
        model.load_adapter("large", make(model, {QUERY: 32}, seed=3))
    assert raised.value.info.code is Code.ADAPTER_UNLOADABLE
    assert residents(model) == {one.digest for one in small}


def test_nothing_is_evicted_for_an_adapter_that_those_in_use_leave_no_room(tiny_record: ModelRecord) -> None:
    model = load_model(tiny_record, options=ModelOptions(adapter_bytes=4 * 8 * PAIR_BYTES))
    used, idle = make(model, {QUERY: 8}, seed=1), make(model, {QUERY: 8}, seed=2)
    for one in (used, idle):
        model.load_adapter(one.digest, one)
    whole = make(model, {QUERY: 32}, seed=3)
    with pytest.raises(ShoalError) as raised:
        model.load_adapter(whole.digest, whole, in_use={used.digest})
    assert raised.value.info.code is Code.OUT_OF_MEMORY
    assert residents(model) == {used.digest, idle.digest}
    # alone it fits to the byte
    model.load_adapter(whole.digest, whole)
    assert residents(model) == {whole.digest}
    assert model.adapters.size_bytes == 4 * 8 * PAIR_BYTES


def test_banks_shrink_for_others_when_much_of_them_is_empty(tiny_record: ModelRecord) -> None:
    model = load_model(tiny_record, options=ModelOptions(adapter_bytes=8 * 8 * PAIR_BYTES))
    many = [make(model, {QUERY: 8}, seed=seed) for seed in range(8)]
    for one in many:
        model.load_adapter(one.digest, one)
    kept = many[5]
    before = vector(model, kept.digest)
    for one in many:
        if one is not kept:
            model.unload_adapter(one.digest)
    other = make(model, {QUERY: 32}, seed=99)
    model.load_adapter(other.digest, other)
    assert residents(model) == {kept.digest, other.digest}
    np.testing.assert_allclose(vector(model, kept.digest), before, atol=1e-6)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_loads_within_the_limit_keep_every_resident_as_it_was(
    data: st.DataObject, tiny_record: ModelRecord
) -> None:
    limit = data.draw(st.integers(4, 60)) * 4 * PAIR_BYTES
    slots = data.draw(st.integers(1, 6))
    model = load_model(tiny_record, options=ModelOptions(slots=slots, adapter_bytes=limit))
    paths = [path for path, shape in model.adapters.shapes.items() if shape == (32, 32)][:3]
    choices = st.dictionaries(st.sampled_from(paths), st.sampled_from([2, 4, 7, 16]), min_size=1)
    adapters = [
        make(model, ranks, seed=seed) for seed, ranks in enumerate(data.draw(st.lists(choices, min_size=1, max_size=6)))
    ]
    expected: dict[str, Vectors] = {}
    for _ in range(10):
        one = data.draw(st.sampled_from(adapters))
        in_use = data.draw(st.sets(st.sampled_from([other.digest for other in adapters]), max_size=2))
        before = residents(model)
        evicted = load(model, one, in_use)
        if isinstance(evicted, Code):
            assert residents(model) == before, "evicted in vain"
            alone = rank_bucket(one.rank) * PAIR_BYTES * len(one.modules)
            assert (evicted is Code.ADAPTER_UNLOADABLE) == (alone > limit)
            continue
        assert residents(model) == (before | {one.digest}) - set(evicted)
        assert in_use.isdisjoint(evicted)
        assert banks_bytes(model) == model.adapters.size_bytes <= limit
        for digest in residents(model):
            found = vector(model, digest)
            np.testing.assert_allclose(found, expected.setdefault(digest, found), atol=1e-5)
    assert len({found.tobytes() for found in expected.values()}) == len(expected)


@pytest.mark.parametrize("failing", range(8))
def test_a_load_that_runs_out_of_memory_half_way_changes_nothing(
    tiny_record: ModelRecord, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    model = load_model(tiny_record, options=ModelOptions())
    paths = ["encoder.layer.0.attention.self.query", "encoder.layer.1.attention.self.value"]
    held = [make(model, dict.fromkeys(paths, 8), seed=seed) for seed in range(4)]
    for one in held:
        model.load_adapter(one.digest, one)
    before = [vector(model, one.digest) for one in held]
    # the fifth doubles the banks of both modules and adds one for a third
    fifth = make(model, dict.fromkeys([*paths, "encoder.layer.1.output.dense"], 8), seed=9)
    calls = 0
    new_zeros, copy = torch.Tensor.new_zeros, torch.Tensor.copy_

    def failing_zeros(self: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == failing + 1:
            raise torch.OutOfMemoryError("out of memory")
        return new_zeros(self, *arguments, **options)

    def failing_copy(self: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == failing + 1:
            raise torch.OutOfMemoryError("out of memory")
        return copy(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "new_zeros", failing_zeros)
        patch.setattr(torch.Tensor, "copy_", failing_copy)
        with pytest.raises(torch.OutOfMemoryError):
            model.load_adapter(fifth.digest, fifth)
    assert fifth.digest not in model.adapters.table
    assert banks_bytes(model) == model.adapters.size_bytes
    for one, vectors in zip(held, before, strict=True):
        np.testing.assert_array_equal(vector(model, one.digest), vectors)
    # an adapter without the module whose write failed must not find anything of it at its index
    after = make(model, {paths[0]: 8}, seed=10)
    model.load_adapter(after.digest, after)
    fresh = load_model(tiny_record, options=ModelOptions())
    fresh.load_adapter(after.digest, after)
    np.testing.assert_allclose(vector(model, after.digest), vector(fresh, after.digest), atol=1e-6)
    model.load_adapter(fifth.digest, fifth)
    fresh.load_adapter(fifth.digest, fifth)
    np.testing.assert_allclose(vector(model, fifth.digest), vector(fresh, fifth.digest), atol=1e-6)
