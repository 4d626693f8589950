"""Pairs, ranks and numbers: what the tensors say, whatever the configuration claims."""

from __future__ import annotations

import hashlib
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from loras.validation.weights.header import Tensor
from loras.validation.weights.numbers import FORMATS, count_numbers
from loras.validation.weights.safetensors_writer import write_safetensors
from tests.unit.validation.uploads import (
    PREFIX,
    Stored,
    acceptance,
    adapter,
    configuration,
    lora,
    paths,
    refusal,
    stored,
)
from wire.reports import Finding

QUERY = "encoder.layer.0.attention.self.query"
DENSE = "encoder.layer.0.intermediate.dense"
A, B = f"{PREFIX}{QUERY}.lora_A.weight", f"{PREFIX}{QUERY}.lora_B.weight"


@pytest.mark.parametrize(("missing", "left"), [(A, "lora_B"), (B, "lora_A")])
def test_half_a_pair(tmp_path: Path, missing: str, left: str) -> None:
    tensors = lora(paths("query", "value"))
    del tensors[missing]
    refusal(adapter(tensors).examine(tmp_path), Finding.UNPAIRED, QUERY, left)


@pytest.mark.parametrize("module", [QUERY, DENSE])
def test_a_and_b_swapped(tmp_path: Path, module: str) -> None:
    tensors = lora([module])
    a, b = f"{PREFIX}{module}.lora_A.weight", f"{PREFIX}{module}.lora_B.weight"
    tensors[a], tensors[b] = tensors[b], tensors[a]
    refusal(adapter(tensors).examine(tmp_path), Finding.AB_SHAPE, module, "swapped")


def test_ranks_of_a_and_b_differ(tmp_path: Path) -> None:
    tensors = lora(paths("query"))
    tensors[B] = stored(np.ones((64, 3)))
    refusal(adapter(tensors).examine(tmp_path), Finding.AB_SHAPE, "4×64", "64×3", "ranks 4 and 3")


def test_matrices_of_a_convolution(tmp_path: Path) -> None:
    tensors = {A: stored(np.ones((4, 64, 1, 1))), B: stored(np.ones((64, 4, 1, 1)))}
    refusal(adapter(tensors).examine(tmp_path), Finding.AB_SHAPE, "not two-dimensional")


def test_rank_differs_from_the_configuration(tmp_path: Path) -> None:
    reply = adapter(lora(paths("query"), rank=8), configuration(r=4)).examine(tmp_path)
    refusal(reply, Finding.RANK_CONFLICT, "rank 8", "says 4", QUERY)


def test_rank_differs_from_its_pattern(tmp_path: Path) -> None:
    reply = adapter(config=configuration(rank_pattern={"value": 8})).examine(tmp_path)
    refusal(reply, Finding.RANK_CONFLICT, "2 modules", "says 8")


def test_rank_above_the_limit(tmp_path: Path) -> None:
    upload = adapter(lora(paths("query"), rank=17), configuration(r=17))
    upload.max_rank = 16
    refusal(upload.examine(tmp_path), Finding.RANK_TOO_LARGE, "limit is 16", "rank 17")


def test_rank_at_the_limit(tmp_path: Path) -> None:
    upload = adapter(lora(paths("query", "value"), rank=16), configuration(r=16))
    upload.max_rank = 16
    acceptance(upload.examine(tmp_path))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_numbers_that_are_not_finite(tmp_path: Path, value: float, dtype: str) -> None:
    tensors = lora(paths("query", "value"), dtype=dtype)
    array = np.ones((64, 4), dtype="<f4")
    array[63, 3] = array[5, 0] = value
    tensors[B] = stored(array, dtype)
    refusal(adapter(tensors).examine(tmp_path), Finding.NONFINITE, f"{B} has 2")


def test_numbers_beyond_the_first_chunk_are_read(tmp_path: Path) -> None:
    # the tensor is larger than two reads of 4 MiB, its last number alone is bad
    raw = np.ones(64 * 40_000, dtype="<f4")
    raw[-1] = np.nan
    tensors = {A: Stored("F32", (40_000, 64), raw.tobytes()), B: stored(np.ones((64, 40_000)))}
    upload = adapter(tensors, configuration(r=40_000))
    upload.max_rank = 40_000
    refusal(upload.examine(tmp_path), Finding.NONFINITE, f"{A} has 1")


def test_a_chunk_at_a_time_is_in_memory(tmp_path: Path) -> None:
    """Weights of 64 MB are counted and written in a small part of that."""
    size = 64 << 20
    source = tmp_path / "weights"
    with source.open("wb") as file:
        file.truncate(size)
    tensor = Tensor("a", "F32", (size // 4,), 0, size, source)
    tracemalloc.start()
    counts = count_numbers([tensor])
    digest = write_safetensors(tmp_path / "written", {"a": tensor}, {})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not counts["a"].nonzero
    with (tmp_path / "written").open("rb") as written:
        assert hashlib.file_digest(written, "sha256").hexdigest() == digest
    assert peak < size // 2


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_bit_patterns_agree_with_ieee_for_every_half(dtype: str) -> None:
    bits = np.arange(1 << 16, dtype="<u2")
    form = FORMATS[dtype]
    values = bits.view("<f2") if dtype == "F16" else (bits.astype("<u4") << 16).view("<f4")
    assert np.array_equal((bits & form.exponent) != form.exponent, np.isfinite(values))
    assert np.array_equal((bits & form.magnitude) != 0, values != 0)


def test_scale_zero_has_no_effect(tmp_path: Path) -> None:
    acceptance(adapter(config=configuration(lora_alpha=0)).examine(tmp_path), Finding.NO_EFFECT)
