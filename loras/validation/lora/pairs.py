"""Matrices A (rank, in_features) and B (out_features, rank) of each module, and their ranks."""

from __future__ import annotations

from dataclasses import dataclass

from loras.validation.findings import clipped, failed, noted, passed, shape_text, some
from loras.validation.lora.configuration import Configuration
from loras.validation.lora.tensors import Pair
from loras.validation.lora.variant import Declared
from loras.validation.weights.header import Tensor
from wire.reports import Finding, Row

CHECK = "Pairs of A and B"
_RANK = "Rank"
FLOAT_TYPES = ("F32", "F16", "BF16")
_MATRIX = 2


@dataclass(frozen=True, slots=True)
class Paired:
    """Declared content with the rank limit of the serving slots."""

    declared: Declared
    max_rank: int

    @property
    def configuration(self) -> Configuration:
        return self.declared.configuration

    @property
    def pairs(self) -> tuple[Pair, ...]:
        return self.declared.sorted.pairs

    @property
    def matrices(self) -> list[Tensor]:
        return [tensor for pair in self.pairs for tensor in (pair.a, pair.b) if tensor is not None]

    @property
    def used(self) -> list[Tensor]:
        """Every tensor that is served: matrices, magnitudes and whole weights."""
        tensors = self.declared.sorted
        return [*self.matrices, *tensors.magnitudes.values(), *tensors.whole.values()]


def check_dtypes(found: Paired) -> list[Row]:
    """Float types that the worker computes with; quantized matrices need scales that are not here."""
    odd = [tensor for tensor in found.used if tensor.dtype not in FLOAT_TYPES]
    if odd:
        named = some(f"{clipped(tensor.name)} is {tensor.dtype}" for tensor in odd)
        todo = "Save the adapter in float32, float16 or bfloat16."
        return [failed("Number format", Finding.DTYPE_UNSUPPORTED, f"{len(odd)} tensors: {named}.", todo)]
    used = sorted({tensor.dtype for tensor in found.used})
    return [passed("Number format", ", ".join(used) or "no tensors")]


def check_pairs(found: Paired) -> list[Row]:
    """Every A has its B."""
    alone = [
        f"{clipped(pair.module)} has only lora_{'A' if pair.b is None else 'B'}"
        for pair in found.pairs
        if pair.a is None or pair.b is None
    ]
    if alone:
        todo = "Save the adapter again; both matrices of a module belong in the file."
        return [failed(CHECK, Finding.UNPAIRED, f"{len(alone)} modules lack a matrix: {some(alone)}.", todo)]
    return [passed(CHECK, f"{len(found.pairs)} modules, each with A and B")]


def check_empty(found: Paired) -> list[Row]:
    """Rank 0 and tensors without numbers."""
    empty = [f"{clipped(tensor.name)} {shape_text(tensor.shape)}" for tensor in found.used if not tensor.elements]
    if not empty:
        return []
    todo = "Save the adapter from a process that holds the weights (with DeepSpeed ZeRO-3, gather them first)."
    return [failed(CHECK, Finding.EMPTY_TENSOR, f"{len(empty)} tensors have no numbers: {some(empty)}.", todo)]


def check_magnitudes(found: Paired) -> list[Row]:
    """DoRA has one magnitude for each output of each of its modules."""
    magnitudes = found.declared.sorted.magnitudes
    if not magnitudes:
        return []
    outputs = {module: b.shape[0] for module, _, b in _whole(found) if b.shape}
    alone = [f"{clipped(module)} has no magnitude" for module in outputs if module not in magnitudes]
    alone += [f"{clipped(module)} has a magnitude but no matrices" for module in magnitudes if module not in outputs]
    if alone:
        todo = "Save the adapter again; every module of a DoRA adapter has lora_A, lora_B and lora_magnitude_vector."
        return [failed(CHECK, Finding.UNPAIRED, f"{len(alone)} modules are not whole: {some(alone)}.", todo)]
    odd = [
        f"{clipped(module)}: {shape_text(tensor.shape)} for {outputs[module]} outputs"
        for module, tensor in magnitudes.items()
        if tensor.elements != outputs[module]
    ]
    if odd:
        todo = "lora_magnitude_vector has one number for each output of its module."
        return [failed(CHECK, Finding.AB_SHAPE, f"{len(odd)} magnitudes do not fit: {some(odd)}.", todo)]
    return [passed("DoRA magnitudes", f"{len(magnitudes)} modules")]


def check_orientation(found: Paired) -> list[Row]:
    """A is (rank, in), B is (out, rank), with one rank."""
    odd = []
    for module, tensor_a, tensor_b in _whole(found):
        a, b = tensor_a.shape, tensor_b.shape
        shown = f"{clipped(module)}: A {shape_text(a)}, B {shape_text(b)}"
        if len(a) != _MATRIX or len(b) != _MATRIX:
            odd.append(f"{shown} (not two-dimensional)")
        elif _swapped(found, module, a, b):
            odd.append(f"{shown} (A and B are swapped or transposed)")
        elif a[0] != b[1]:
            odd.append(f"{shown} (ranks {a[0]} and {b[1]})")
    if not odd:
        return [passed("Shape of A and B", "A is (rank, in) and B is (out, rank) in every module")]
    todo = "lora_A has the shape (rank, in_features), lora_B (out_features, rank)."
    return [failed("Shape of A and B", Finding.AB_SHAPE, f"{len(odd)} modules: {some(odd)}.", todo)]


def check_ranks(found: Paired) -> list[Row]:
    """Ranks of the tensors against the configuration's, and against the limit."""
    conflicts, large = [], []
    ranks: set[int] = set()
    for module, rank in sound_ranks(found):
        ranks.add(rank)
        wanted = found.configuration.pattern_rank(module)
        if wanted is not None and wanted != rank:
            conflicts.append(f"{clipped(module)} has rank {rank}, the configuration says {wanted}")
        if rank > found.max_rank:
            large.append(f"{clipped(module)} has rank {rank}")
    rows = []
    if conflicts:
        todo = "Put the ranks of the training into r and rank_pattern; the scale alpha / r depends on them."
        what = f"{len(conflicts)} modules: {some(conflicts)}."
        rows.append(failed(_RANK, Finding.RANK_CONFLICT, what, todo))
    if large:
        todo = f"Train with r ≤ {found.max_rank}, or ask for workers with a larger rank limit."
        what = f"The limit is {found.max_rank}: {some(large)}."
        rows.append(failed(_RANK, Finding.RANK_TOO_LARGE, what, todo))
    if rows or not ranks:
        return rows
    return [passed(_RANK, f"{', '.join(map(str, sorted(ranks)))} (limit {found.max_rank})")]


def check_scale(found: Paired) -> list[Row]:
    """Where the scale comes from."""
    configuration = found.configuration
    rows = []
    if configuration.rank is None:
        what = "r is absent; each module's rank is taken from its tensors."
        rows.append(noted("Scale", Finding.CONFIG_INFERRED, what, "Check r against the training."))
    if not configuration.alpha_given:
        what = f"lora_alpha is absent; PEFT's default {configuration.alpha:g} is used."
        rows.append(noted("Scale", Finding.CONFIG_INFERRED, what, "Check lora_alpha against the training."))
    scales = sorted({configuration.scale(module, rank) for module, rank in sound_ranks(found)})
    rule = "alpha / sqrt(r), rsLoRA" if configuration.rslora else "alpha / r"
    listed = some(f"{scale:g}" for scale in scales)
    return [*rows, passed("Scale", f"{listed} ({rule})")]


def sound_ranks(found: Paired) -> list[tuple[str, int]]:
    """Module and rank of every pair whose shapes agree."""
    return [
        (module, a.shape[0])
        for module, a, b in _whole(found)
        if _agree(a, b) and not _swapped(found, module, a.shape, b.shape)
    ]


def _whole(found: Paired) -> list[tuple[str, Tensor, Tensor]]:
    return [(pair.module, pair.a, pair.b) for pair in found.pairs if pair.a is not None and pair.b is not None]


def _agree(a: Tensor, b: Tensor) -> bool:
    if len(a.shape) != _MATRIX or len(b.shape) != _MATRIX or not a.elements or not b.elements:
        return False
    return a.shape[0] == b.shape[1]


def _swapped(found: Paired, module: str, a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    if len(a) != _MATRIX or len(b) != _MATRIX or a[1] != b[0] or not (a[0] > a[1] and b[1] > b[0]):
        return False
    # of a square module both readings agree; the configured rank tells
    return a[0] != b[1] or found.configuration.pattern_rank(module) == a[1] != a[0]


PAIR_CHECKS = (
    check_dtypes, check_pairs, check_empty, check_orientation, check_magnitudes, check_ranks, check_scale,
)  # fmt: skip
