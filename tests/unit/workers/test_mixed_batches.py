"""Mixed batches equal one-by-one results and PEFT's, under loads and evictions, whatever the mix."""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.artifacts import MINILM_ID, MINILM_SOURCE, RandomAdapter, minilm_shapes, random_adapter, targets
from tests.unit.workers.conftest import WORDS
from wire.jobs import EmbeddingInputs, Task
from wire.registry import ModelRecord
from workers.models import LoadedModel, ModelOptions, load_model
from workers.models.encoder import load_encoder
from workers.models.folder import open_folder
from workers.models.protocol import Vectors
from workers.packing.artifact import read_artifact
from workers.sources import resolve_source

TOLERANCE = 1e-4


class Reference:
    """The base model alone and PEFT over it, one adapter at a time."""

    def __init__(self, record: ModelRecord) -> None:
        self._kind = load_encoder(open_folder(resolve_source(record.source)), torch.device("cpu"))
        self._plain = self._kind.body

    def embed(self, texts: Sequence[str], adapter: RandomAdapter | None, folder: Path) -> Vectors:
        from peft import PeftModel

        kind = self._kind
        kind.body = self._plain
        if adapter is not None:
            copied: Any = copy.deepcopy(self._plain)
            with warnings.catch_warnings():  # PEFT reads a property that transformers is about to drop
                warnings.simplefilter("ignore", FutureWarning)
                kind.body = PeftModel.from_pretrained(copied, str(adapter.write_peft(folder))).eval()
        with torch.inference_mode():
            rows = [kind.prepare(Task.EMBEDDINGS, EmbeddingInputs([text])).rows for text in texts]
            return np.concatenate([kind.forward(row, [None]) for row in rows])


def load(model: LoadedModel, adapter: RandomAdapter, folder: Path) -> None:
    path = adapter.write_canonical(folder)
    model.load_adapter(adapter.digest, read_artifact(path, expected_digest=adapter.digest))


@pytest.fixture(scope="module")
def tiny_shapes(tiny_record: ModelRecord) -> dict[str, tuple[int, int]]:
    return load_model(tiny_record, options=ModelOptions()).adapters.shapes


@pytest.fixture(scope="module")
def tiny_reference(tiny_record: ModelRecord) -> Reference:
    return Reference(tiny_record)


@st.composite
def adapters_for(draw: st.DrawFn, paths: list[str], shapes: dict[str, tuple[int, int]]) -> list[RandomAdapter]:
    count = draw(st.integers(1, 4))
    found = []
    for number in range(count):
        chosen = draw(st.lists(st.sampled_from(paths), min_size=1, max_size=7, unique=True))
        ranks = {path: draw(st.sampled_from([1, 2, 3, 4, 5, 8, 13])) for path in chosen}
        alpha = draw(st.sampled_from([0.5, 4.0, 16.0, 64.0]))
        found.append(random_adapter(shapes, ranks, seed=1000 * count + number, alpha=alpha, strength=2.0))
    return found


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_mix_equals_peft_row_by_row_while_adapters_come_and_go(
    data: st.DataObject,
    tiny_record: ModelRecord,
    tiny_shapes: dict[str, tuple[int, int]],
    tiny_reference: Reference,
) -> None:
    paths = [path for path in tiny_shapes if path.startswith("encoder.")]
    adapters = data.draw(adapters_for(paths, tiny_shapes))
    slots = data.draw(st.integers(1, len(adapters)))
    model = load_model(tiny_record, options=ModelOptions(slots=slots))
    reference = tiny_reference
    texts = [" ".join(WORDS[4 + number % 9 : 6 + number % 12]) for number in range(7)]
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        expected = {adapter.digest: reference.embed(texts, adapter, folder / adapter.digest) for adapter in adapters}
        base = reference.embed(texts, None, folder)
        for _ in range(2):
            wanted = data.draw(st.lists(st.sampled_from(adapters), min_size=1, max_size=slots))
            digests = {adapter.digest for adapter in wanted}
            for adapter in wanted:
                model.load_adapter(adapter.digest, read_artifact(adapter.write_canonical(folder)), in_use=digests)
            rows = data.draw(st.lists(st.sampled_from([None, *sorted(digests)]), min_size=1, max_size=24))
            numbers = [data.draw(st.integers(0, len(texts) - 1)) for _ in rows]
            mixed = model.embed([texts[number] for number in numbers], rows)
            for row, (number, digest) in enumerate(zip(numbers, rows, strict=True)):
                wanted_row = base[number] if digest is None else expected[digest][number]
                np.testing.assert_allclose(mixed[row], wanted_row, atol=TOLERANCE, rtol=0)
                alone = model.embed([texts[number]], [digest])[0]
                np.testing.assert_allclose(mixed[row], alone, atol=TOLERANCE, rtol=0)


def test_minilm_mixed_batch_equals_peft(tmp_path: Path) -> None:
    record = ModelRecord(MINILM_ID, "", MINILM_SOURCE, [Task.EMBEDDINGS], "default", 256, 384, 0)
    shapes = minilm_shapes()
    adapters = [
        random_adapter(shapes, dict.fromkeys(targets(shapes, "query", "value"), 16), seed=1, strength=3.0),
        random_adapter(shapes, dict.fromkeys(shapes, 8), seed=2, alpha=4.0),
        random_adapter(shapes, {"encoder.layer.3.output.dense": 64}, seed=3, dtype=torch.bfloat16, strength=3.0),
    ]
    model = load_model(record, options=ModelOptions())
    for adapter in adapters:
        load(model, adapter, tmp_path)
    texts = ["Pump 7 lost pressure after the seal was replaced.", "ok", "water " * 60]
    mixed = model.embed(texts * 4, [None] * 3 + [adapter.digest for adapter in adapters for _ in texts])
    reference = Reference(record)
    base = reference.embed(texts, None, tmp_path)
    np.testing.assert_allclose(mixed[:3], base, atol=1e-5, rtol=0)
    for number, adapter in enumerate(adapters, start=1):
        part = mixed[3 * number : 3 * number + 3]
        expected = reference.embed(texts, adapter, tmp_path / str(number))
        np.testing.assert_allclose(part, expected, atol=TOLERANCE, rtol=0)
        assert np.abs(part - base).max() > 100 * TOLERANCE


def test_slot_of_seven_modules_leaves_nothing_to_an_adapter_of_two(
    tiny_record: ModelRecord, tiny_shapes: dict[str, tuple[int, int]], tmp_path: Path
) -> None:
    paths = [path for path in tiny_shapes if path.startswith("encoder.")]
    seven = random_adapter(tiny_shapes, dict.fromkeys(paths[:7], 8), seed=1, strength=4.0)
    two = random_adapter(tiny_shapes, dict.fromkeys(paths[:2], 5), seed=2, strength=4.0)
    texts = ["a small shoal", "the storm in deep water"]
    used = load_model(tiny_record, options=ModelOptions(slots=1))
    load(used, seven, tmp_path)
    with_seven = used.embed(texts, [seven.digest] * 2)
    load(used, two, tmp_path)
    assert [resident.digest for resident in used.adapters.residents()] == [two.digest]
    fresh = load_model(tiny_record, options=ModelOptions(slots=1))
    load(fresh, two, tmp_path)
    np.testing.assert_array_equal(used.embed(texts, [two.digest] * 2), fresh.embed(texts, [two.digest] * 2))
    used.unload_adapter(two.digest)
    load(used, seven, tmp_path)
    np.testing.assert_array_equal(used.embed(texts, [seven.digest] * 2), with_seven)


def test_all_base_batch_is_bit_equal_to_the_plain_model_beside_loaded_adapters(
    tiny_record: ModelRecord, tiny_shapes: dict[str, tuple[int, int]], tmp_path: Path
) -> None:
    plain = load_model(tiny_record, options=ModelOptions())
    busy = load_model(tiny_record, options=ModelOptions())
    load(busy, random_adapter(tiny_shapes, dict.fromkeys(tiny_shapes, 4), seed=1, strength=4.0), tmp_path)
    texts = ["a small shoal", "fish", "the storm in deep water"]
    np.testing.assert_array_equal(busy.embed(texts, [None] * 3), plain.embed(texts, [None] * 3))


def test_memory_grows_with_use_and_stays_below_its_limit(
    tiny_record: ModelRecord, tiny_shapes: dict[str, tuple[int, int]], tmp_path: Path
) -> None:
    path = "encoder.layer.0.attention.self.query"
    limit = 8 * 4 * 8 * (32 + 32)  # eight adapters of rank 8 on one module
    model = load_model(tiny_record, options=ModelOptions(slots=64, adapter_bytes=limit))
    assert model.adapters.size_bytes == 0
    for seed in range(12):
        load(model, random_adapter(tiny_shapes, {path: 8}, seed=seed), tmp_path)
        assert 0 < model.adapters.size_bytes <= limit
    assert len(model.adapters.residents()) == 8
    load(model, random_adapter(tiny_shapes, {path: 2}, seed=99), tmp_path)
    assert model.adapters.size_bytes <= limit
    assert len(model.adapters.residents()) >= 6, "more was evicted than the one needed"
