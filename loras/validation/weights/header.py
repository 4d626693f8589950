"""A bounded reader of safetensors headers, which believes no number in them.

Format: 8 bytes little-endian header length, JSON header, data (https://huggingface.co/docs/safetensors).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, cast

from loras.validation.findings import Refused, clipped, failed, passed, shown
from wire.reports import Finding, Row

CHECK = "Weights file is well formed"
MAX_HEADER_BYTES = 100_000_000
MAX_DIMENSIONS = 8
_LENGTH_BYTES = 8
# no header of real tensors has more separators; each costs memory once parsed
_MAX_SEPARATORS = 1_000_000

ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8, "C64": 8,
}  # fmt: skip

_Pairs = list[tuple[str, object]]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: ``begin`` and ``end`` are byte positions in the file ``source``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int
    source: Path

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Header:
    """Tensors in name order, and the size of the file."""

    tensors: tuple[Tensor, ...]
    metadata: dict[str, str]
    file_bytes: int


class _Duplicate(Exception):
    pass


def read_header(path: Path) -> Header:
    """The checked header of a safetensors file.

    Raises ``Refused`` (TRUNCATED, HEADER_INVALID, DUPLICATE_TENSOR, DTYPE_UNSUPPORTED).
    """
    file_bytes = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(_LENGTH_BYTES)
        if len(start) < _LENGTH_BYTES:
            raise _truncated(f"the file has {len(start)} bytes, its first {_LENGTH_BYTES} are the header's length")
        length = int.from_bytes(start, "little")
        if length > MAX_HEADER_BYTES:
            said = "as a file of torch.save does" if start.startswith(b"PK") else f"with {start!r}"
            raise _invalid(f"it begins {said}, so its header claims {length} bytes (limit {MAX_HEADER_BYTES})")
        if length > file_bytes - _LENGTH_BYTES:
            raise _invalid(
                f"the header claims {length} bytes, the file has {file_bytes - _LENGTH_BYTES} after its length"
            )
        raw = file.read(length)
    entries = _parse(raw)
    data_start = _LENGTH_BYTES + length
    metadata = _metadata(entries.pop("__metadata__", {}))
    tensors = [_tensor(path, name, entry, data_start) for name, entry in sorted(entries.items())]
    _check_layout(tensors, data_start, file_bytes)
    return Header(tuple(tensors), metadata, file_bytes)


def check_header(header: Header) -> list[Row]:
    """Number of tensors and bytes that were accounted for."""
    return [passed(CHECK, f"{len(header.tensors)} tensors, every one of {header.file_bytes:,} bytes accounted for")]


def _parse(raw: bytes) -> dict[str, object]:
    if not raw.startswith(b"{"):
        raise _invalid("the header does not begin with '{', so the file is no safetensors file")
    if raw.count(b":") + raw.count(b",") + raw.count(b"[") > _MAX_SEPARATORS:
        raise _invalid(f"the header of {len(raw)} bytes has more than {_MAX_SEPARATORS} separators")
    try:
        parsed = json.loads(raw, object_pairs_hook=_unique, parse_constant=_reject_constant)
    except _Duplicate as error:
        found = f"Tensor {clipped(str(error))!r} is in the header twice."
        raise Refused(failed(CHECK, Finding.DUPLICATE_TENSOR, found, "Save the adapter again.")) from error
    except (ValueError, RecursionError) as error:
        raise _invalid(f"the header is not JSON ({clipped(str(error))})") from error
    return cast(dict[str, object], parsed)


def _unique(pairs: _Pairs) -> dict[str, object]:
    table = dict(pairs)
    if len(table) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _Duplicate(name)
            seen.add(name)
    return table


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _metadata(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise _invalid("__metadata__ does not map names to texts")
    return cast(dict[str, str], value)


def _tensor(source: Path, name: str, entry: object, data_start: int) -> Tensor:
    label = clipped(name)
    if not isinstance(entry, dict):
        raise _invalid(f"the entry of {label!r} is no object")
    dtype, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str):
        raise _invalid(f"{label!r} has no dtype")
    if not isinstance(shape, list) or not all(_is_count(size) for size in shape) or len(shape) > MAX_DIMENSIONS:
        raise _invalid(f"{label!r} has the shape {shown(shape)}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_count(offset) for offset in offsets):
        raise _invalid(f"{label!r} has the offsets {shown(offsets)}")
    begin, end = offsets
    if begin > end:
        raise _invalid(f"{label!r} ends at {end} before it begins at {begin}")
    if dtype not in ITEM_BYTES:
        found = f"Tensor {label!r} has the unknown dtype {clipped(dtype)!r}."
        todo = "Save the adapter in float32, float16 or bfloat16."
        raise Refused(failed(CHECK, Finding.DTYPE_UNSUPPORTED, found, todo))
    wanted = math.prod(shape) * ITEM_BYTES[dtype]
    if end - begin != wanted:
        raise _invalid(f"{label!r} has {end - begin} bytes, its shape {shape} in {dtype} needs {wanted}")
    return Tensor(name, dtype, tuple(shape), data_start + begin, data_start + end, source)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _check_layout(tensors: list[Tensor], data_start: int, file_bytes: int) -> None:
    """Tensors follow each other without hole or overlap, from the header's end to the file's."""
    position = data_start
    for tensor in sorted(tensors, key=lambda tensor: (tensor.begin, tensor.end)):
        if tensor.begin != position:
            problem = "overlaps the one before it" if tensor.begin < position else "leaves a hole before it"
            raise _invalid(f"{clipped(tensor.name)!r} begins at byte {tensor.begin - data_start} and {problem}")
        position = tensor.end
    if position > file_bytes:
        raise _truncated(f"the header describes a file of {position} bytes, this one has {file_bytes}")
    if position < file_bytes:
        raise _invalid(f"{file_bytes - position} bytes after the last tensor belong to nothing")


def _truncated(found: str) -> Refused:
    todo = "Upload the file again and compare its size with the original."
    return Refused(failed(CHECK, Finding.TRUNCATED, f"The weights are cut off: {found}.", todo))


def _invalid(found: str) -> Refused:
    todo = "Save the adapter again with save_pretrained(..., safe_serialization=True)."
    return Refused(failed(CHECK, Finding.HEADER_INVALID, f"Not a valid safetensors file: {found}.", todo))
