"""The tensors of a whole model against those that its class holds: missing, misshapen, unused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from loras.validation.findings import Refused, clipped, failed, noted, passed, shape_text, some
from loras.validation.full.files import ModelFiles
from loras.validation.lora.pairs import FLOAT_TYPES
from loras.validation.weights.header import Header, Tensor, read_header
from loras.validation.weights.torch_file import read_torch_file
from wire.manifest import Blueprint
from wire.reports import Finding, Row

CHECK = "Tensors of the model"
# names that old versions of transformers gave to the parameters of a layer norm
_OLD_ENDINGS = {".gamma": ".weight", ".beta": ".bias"}


@dataclass(frozen=True, slots=True)
class ModelTensors:
    """Tensors by the name in the class (``used``) and by the name in the files (``unused``); ``missing`` names and
    ``misfits`` in words are the class's."""

    blueprint: Blueprint
    used: dict[str, Tensor]
    unused: dict[str, Tensor]
    missing: tuple[str, ...]
    misfits: tuple[str, ...]


def read_weights(files: ModelFiles, work_dir: Path) -> dict[str, Tensor]:
    """All tensors of all weight files by name. Raises ``Refused`` (DUPLICATE_TENSOR, SHARD_MISSING, and what the
    readers of headers raise)."""
    tensors: dict[str, Tensor] = {}
    for base, path in files.weights.items():
        for tensor in _read(base, path, work_dir).tensors:
            if tensor.name in tensors:
                what = f"Tensor {clipped(tensor.name)!r} is in two weight files, {clipped(base)} is the second."
                raise Refused(failed(CHECK, Finding.DUPLICATE_TENSOR, what, "Save the model again."))
            tensors[tensor.name] = tensor
    absent = [name for name in files.index if name not in tensors]
    if absent:
        what = f"{len(absent)} of {len(files.index)} tensors that the index lists are in no file: {some(absent)}."
        raise Refused(failed(CHECK, Finding.SHARD_MISSING, what, "Upload the shards that belong to this index."))
    return tensors


def compare_tensors(tensors: Mapping[str, Tensor], blueprint: Blueprint) -> ModelTensors:
    """Line the files' names up with the class's, with and without the attribute that holds the body."""
    shapes = {tensor.name: tuple(tensor.shape) for tensor in blueprint.tensors}
    used: dict[str, Tensor] = {}
    unused: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        place = next(
            (place for place in _places(name, blueprint.prefix) if place in shapes and place not in used), None
        )
        if place is None:
            unused[name] = tensor
        else:
            used[place] = tensor
    optional = set(blueprint.optional)
    optional |= {name for group in blueprint.tied if not used.keys().isdisjoint(group) for name in group}
    return ModelTensors(
        blueprint=blueprint,
        used=used,
        unused=unused,
        missing=tuple(name for name in shapes if name not in used and name not in optional),
        misfits=tuple(
            f"{clipped(tensor.name)} {shape_text(tensor.shape)}, config.json implies {shape_text(shapes[place])}"
            for place, tensor in used.items()
            # those without numbers are named by a check of their own
            if tensor.elements and tensor.shape != shapes[place]
        ),
    )


def check_tensors(found: ModelTensors) -> list[Row]:
    """Every tensor of the class is there, in its shape; others are left aside."""
    total, name = len(found.blueprint.tensors), found.blueprint.manifest.architecture
    rows = []
    if found.missing:
        what = f"{len(found.missing)} of {total} tensors of {name} are in no file: {some(found.missing)}."
        if found.unused:
            what += f" The files have {some(found.unused)} instead."
        todo = "Save the whole model again (with FSDP or ZeRO-3, gather its weights first)."
        rows.append(failed(CHECK, Finding.TENSORS_MISSING, what, todo))
    if found.misfits:
        what = f"{len(found.misfits)} of {total} tensors have another shape: {some(found.misfits)}."
        todo = "Upload the config.json that belongs to these weights; it may be of another size of the model."
        rows.append(failed(CHECK, Finding.SHAPE_MISMATCH, what, todo))
    if rows:
        return rows
    if found.unused:
        what = f"{len(found.unused)} tensors are not used by {name} and are not kept: {some(found.unused)}."
        rows.append(noted(CHECK, Finding.TENSORS_UNUSED, what, "Nothing to do if the model works for you without."))
    return [passed(CHECK, f"{len(found.used)} of {name}, each in the shape that config.json implies"), *rows]


def check_number_formats(found: ModelTensors) -> list[Row]:
    """Float types that workers compute with."""
    odd = [tensor for tensor in found.used.values() if tensor.dtype not in FLOAT_TYPES]
    if odd:
        named = some(f"{clipped(tensor.name)} is {tensor.dtype}" for tensor in odd)
        todo = "Save the model in float32, float16 or bfloat16."
        return [failed("Number format", Finding.DTYPE_UNSUPPORTED, f"{len(odd)} tensors: {named}.", todo)]
    return [passed("Number format", ", ".join(sorted({tensor.dtype for tensor in found.used.values()})))]


def check_empty_tensors(found: ModelTensors) -> list[Row]:
    """Tensors without numbers, as a process that did not hold them saves them."""
    empty = [clipped(tensor.name) for tensor in found.used.values() if not tensor.elements]
    if not empty:
        return []
    todo = "Save the model from a process that holds the weights (with DeepSpeed ZeRO-3, gather them first)."
    return [failed(CHECK, Finding.EMPTY_TENSOR, f"{len(empty)} tensors have no numbers: {some(empty)}.", todo)]


def _read(base: str, path: Path, work_dir: Path) -> Header:
    if base.endswith(".bin"):
        return read_torch_file(path, base, work_dir)
    try:
        return read_header(path)
    except Refused as refused:
        # of several files, which one
        raise Refused(*(replace(row, found=f"{clipped(base)}: {row.found}") for row in refused.rows)) from refused


def _places(name: str, prefix: str) -> list[str]:
    for old, new in _OLD_ENDINGS.items():
        if name.endswith(old):
            name = name.removesuffix(old) + new
    start = f"{prefix}."
    return [name, name.removeprefix(start), start + name] if prefix else [name]


TENSOR_CHECKS = (check_empty_tensors, check_tensors, check_number_formats)
