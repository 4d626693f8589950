"""Looks at every number of the weights, a chunk at a time: NaN, Inf, and whether anything is not zero."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from loras.validation.findings import clipped, failed, noted, passed, some
from loras.validation.header import Tensor
from loras.validation.pairs import Paired
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


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts by tensor name."""

    paired: Paired
    counts: dict[str, Count]

    @property
    def has_effect(self) -> bool:
        """Whether any module's scale · B · A can be anything but zero."""
        configuration = self.paired.configuration
        return any(
            self.counts[pair.a.name].nonzero
            and self.counts[pair.b.name].nonzero
            and configuration.pattern_alpha(pair.module) != 0
            for pair in self.paired.pairs
            if pair.a is not None and pair.b is not None
        )


def count_numbers(path: Path, paired: Paired) -> Counted:
    """Read all matrices once, in chunks of 4 MiB."""
    with path.open("rb", buffering=0) as file:
        return Counted(paired, {tensor.name: _count(file.fileno(), tensor) for tensor in paired.matrices})


def check_finite(found: Counted) -> list[Row]:
    """NaN and Inf by tensor and number."""
    bad = [(name, count.nonfinite) for name, count in found.counts.items() if count.nonfinite]
    if bad:
        named = some(f"{clipped(name)} has {number}" for name, number in bad)
        total = sum(number for _, number in bad)
        todo = "The training diverged or overflowed in float16: use an earlier checkpoint, or train in bfloat16."
        what = f"{total} NaN or Inf in {len(bad)} tensors: {named}."
        return [failed(CHECK, Finding.NONFINITE, what, todo)]
    total = sum(tensor.elements for tensor in found.paired.matrices)
    return [passed(CHECK, f"all {total:,} numbers")]


def check_effect(found: Counted) -> list[Row]:
    """An adapter whose product is zero is the base model under another name."""
    if found.has_effect or not found.paired.pairs:
        return []
    zero = [pair.module for pair in found.paired.pairs if pair.b and not found.counts[pair.b.name].nonzero]
    what = f"lora_B is all zero in {len(zero)} of {len(found.paired.pairs)} modules; the output is the base's."
    if not zero:
        what = "The scale or every lora_A is zero; the output is the base's."
    todo = "Check that training ran and that the trained weights were saved."
    return [noted("Effect", Finding.NO_EFFECT, what, todo)]


def chunks(descriptor: int, tensor: Tensor) -> Iterator[bytes]:
    """The tensor's bytes, in pieces of whole numbers."""
    position = tensor.begin
    while position < tensor.end:
        data = os.pread(descriptor, min(_CHUNK_BYTES, tensor.end - position), position)
        if not data:
            raise OSError(f"the weights file ended at byte {position} while it was read")
        whole = len(data) if len(data) % 4 == 0 or position + len(data) == tensor.end else len(data) // 4 * 4
        yield data[:whole]
        position += whole


def _count(descriptor: int, tensor: Tensor) -> Count:
    form = FORMATS[tensor.dtype]
    nonfinite, nonzero = 0, False
    for data in chunks(descriptor, tensor):
        bits = np.frombuffer(data, dtype=form.kind).astype(np.uint32, copy=False)
        nonfinite += int(np.count_nonzero((bits & form.exponent) == form.exponent))
        nonzero = nonzero or bool(np.any(bits & form.magnitude))
    return Count(nonfinite, nonzero)


NUMBER_CHECKS = (check_finite, check_effect)
