"""Looks at every number of the weights, a chunk at a time: NaN, Inf, and whether anything is not zero."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import numpy as np

from loras.validation.findings import clipped, failed, passed, some
from loras.validation.weights.header import Tensor
from wire.reports import Finding, Row

CHECK = "Numbers are finite"
_CHUNK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Format:
    """Bits of one float type: all exponent bits set means NaN or Inf (IEEE 754); all but the sign zero, 0."""

    kind: str
    exponent: int
    magnitude: int


FORMATS = {
    "F32": Format("<u4", 0x7F800000, 0x7FFFFFFF),
    "F16": Format("<u2", 0x7C00, 0x7FFF),
    "BF16": Format("<u2", 0x7F80, 0x7FFF),
}


@dataclass(frozen=True, slots=True)
class Count:
    """Of one tensor: numbers that are NaN or Inf, and whether any is not zero."""

    nonfinite: int
    nonzero: bool


@dataclass(slots=True)
class Reader:
    """Reads tensors out of any number of files, each opened once."""

    _opened: dict[Path, int] = field(default_factory=dict)

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor in self._opened.values():
            os.close(descriptor)
        self._opened.clear()

    def chunks(self, tensor: Tensor) -> Iterator[bytes]:
        """The tensor's bytes, in pieces of whole numbers."""
        if tensor.source not in self._opened:
            self._opened[tensor.source] = os.open(tensor.source, os.O_RDONLY | os.O_CLOEXEC)
        descriptor, position = self._opened[tensor.source], tensor.begin
        while position < tensor.end:
            data = os.pread(descriptor, min(_CHUNK_BYTES, tensor.end - position), position)
            if not data:
                raise OSError(f"the weights file ended at byte {position} while it was read")
            whole = len(data) if len(data) % 8 == 0 or position + len(data) == tensor.end else len(data) // 8 * 8
            yield data[:whole]
            position += whole


def count_numbers(tensors: Iterable[Tensor]) -> dict[str, Count]:
    """Counts by name: every number is read once, in chunks of 4 MiB. Types without NaN are left out."""
    with Reader() as reader:
        return {tensor.name: _count(reader, tensor) for tensor in tensors if tensor.dtype in FORMATS}


def judge_finite(counts: dict[str, Count], total: int) -> list[Row]:
    """Rows on ``counts`` of ``total`` numbers."""
    bad = [(name, count.nonfinite) for name, count in counts.items() if count.nonfinite]
    if bad:
        named = some(f"{clipped(name)} has {number}" for name, number in bad)
        sum_bad = sum(number for _, number in bad)
        todo = "The training diverged or overflowed in float16: use an earlier checkpoint, or train in bfloat16."
        what = f"{sum_bad} NaN or Inf in {len(bad)} tensors: {named}."
        return [failed(CHECK, Finding.NONFINITE, what, todo)]
    return [passed(CHECK, f"all {total:,} numbers")]


def _count(reader: Reader, tensor: Tensor) -> Count:
    form = FORMATS[tensor.dtype]
    nonfinite, nonzero = 0, False
    for data in reader.chunks(tensor):
        bits = np.frombuffer(data, dtype=form.kind).astype(np.uint32, copy=False)
        nonfinite += int(np.count_nonzero((bits & form.exponent) == form.exponent))
        nonzero = nonzero or bool(np.any(bits & form.magnitude))
    return Count(nonfinite, nonzero)
