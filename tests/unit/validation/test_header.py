"""Safetensors headers: cut, forged, overlapping, doubled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.validation.uploads import adapter, lora, paths, refusal, safetensors_bytes, stored, with_header
from wire.reports import Finding

GOOD = safetensors_bytes(lora(paths("query")))
NAME = "base_model.model.encoder.layer.0.attention.self.query.lora_A.weight"


def entry(begin: int, end: int, *, dtype: str = "F32", shape: Any = (2, 2)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def file_of(entries: Any, data_bytes: int) -> bytes:
    return with_header(json.dumps(entries).encode(), bytes(data_bytes))


@pytest.mark.parametrize("data", [b"", GOOD[:5], GOOD[: len(GOOD) // 2], GOOD[:-1]])
def test_cut_files_say_what_was_expected(tmp_path: Path, data: bytes) -> None:
    refusal(adapter(data).examine(tmp_path), Finding.TRUNCATED, str(len(data)))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (with_header(b"{}", length=10_000), "claims 10000 bytes"),
        (with_header(b"{}", length=2**63), f"claims {2**63} bytes"),
        (with_header(b"{}", length=100_000_001), "limit 100000000"),
        (with_header(b"[1]"), "begin with"),
        (with_header(b"{not json}"), "not JSON"),
        (with_header(b'{"a": NaN}'), "not JSON"),
        (with_header(b'{"a": ' + b"[" * 5000 + b"}"), "not JSON"),
        (with_header(b"{" + b'"a":1,' * 600_000 + b"}"), "separators"),
        (with_header(b'{"a": "\xff"}'), "not JSON"),
        (file_of({"a": 1}, 0), "no object"),
        (file_of({"a": {"shape": [1], "data_offsets": [0, 4]}}, 4), "no dtype"),
        (file_of({"a": entry(0, 16, shape=[2, -2])}, 16), "shape"),
        (file_of({"a": entry(0, 16, shape=[2, 2.5])}, 16), "shape"),
        (file_of({"a": entry(0, 4, shape=[1] * 9)}, 4), "shape"),
        (file_of({"a": entry(0, 4, shape=[True])}, 4), "shape"),
        (file_of({"a": entry(16, 0)}, 16), "before it begins"),
        (file_of({"a": entry(-16, 0)}, 16), "offsets"),
        (file_of({"a": entry(0, 12)}, 12), "needs 16"),
        (file_of({"a": entry(0, 16), "b": entry(8, 24)}, 24), "overlaps"),
        (file_of({"a": entry(0, 16), "b": entry(0, 16)}, 16), "overlaps"),
        (file_of({"a": entry(0, 16), "b": entry(20, 36)}, 36), "hole"),
        (file_of({"a": entry(1 << 40, (1 << 40) + 16)}, 16), "hole"),
        (file_of({"a": entry(0, 16)}, 20), "belong to nothing"),
        (file_of({"a": entry(0, 16, shape=[1 << 40, 1 << 40])}, 16), "needs"),
        (file_of({"__metadata__": {"a": 1}}, 0), "__metadata__"),
    ],
)
def test_forged_headers(tmp_path: Path, data: bytes, words: str) -> None:
    refusal(adapter(data).examine(tmp_path), Finding.HEADER_INVALID, words)


def test_duplicate_tensor_is_named(tmp_path: Path) -> None:
    text = json.dumps(entry(0, 16))
    header = f'{{"{NAME}": {text}, "{NAME}": {text}}}'.encode()
    refusal(adapter(with_header(header, bytes(16))).examine(tmp_path), Finding.DUPLICATE_TENSOR, NAME)


def test_unknown_dtype(tmp_path: Path) -> None:
    data = file_of({NAME: entry(0, 16, dtype="F9")}, 16)
    refusal(adapter(data).examine(tmp_path), Finding.DTYPE_UNSUPPORTED, "F9", "float32")


@pytest.mark.parametrize(("dtype", "item_bytes"), [("F8_E4M3", 1), ("I8", 1), ("F64", 8), ("BOOL", 1)])
def test_dtypes_that_are_not_served(tmp_path: Path, dtype: str, item_bytes: int) -> None:
    size = 4 * 64 * item_bytes
    pair = {
        NAME: entry(0, size, dtype=dtype, shape=(4, 64)),
        NAME.replace("lora_A", "lora_B"): entry(size, 2 * size, dtype=dtype, shape=(64, 4)),
    }
    refusal(adapter(file_of(pair, 2 * size)).examine(tmp_path), Finding.DTYPE_UNSUPPORTED, dtype, "2 tensors")


def test_empty_tensors(tmp_path: Path) -> None:
    tensors = lora(paths("query"))
    tensors[NAME] = stored(np.zeros((0, 64)))
    tensors[NAME.replace("lora_A", "lora_B")] = stored(np.zeros((64, 0)))
    refusal(adapter(tensors).examine(tmp_path), Finding.EMPTY_TENSOR, "0×64")
