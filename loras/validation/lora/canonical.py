"""Writes what the checks agreed on: the canonical artifact that workers load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from loras.validation.artifact import CANONICAL_NAME, Canonical, header_metadata
from loras.validation.lora.alignment import Aligned
from loras.validation.lora.effect import Counted
from loras.validation.lora.whole import Placed
from loras.validation.weights.header import Tensor
from loras.validation.weights.safetensors_writer import write_safetensors
from wire.canonical import (
    FORMAT,
    PREFIX_HEAD,
    PREFIX_REPLACE,
    SUFFIX_A,
    SUFFIX_B,
    SUFFIX_MAGNITUDE,
    CanonicalHeader,
    HeadHeader,
    ModuleHeader,
)
from wire.reports import AdapterFacts


def write_canonical(placed: Placed, counted: Counted, work_dir: Path) -> Canonical:
    """Write the canonical artifact of ``wire.canonical`` into ``work_dir``."""
    aligned = placed.headed.intended.aligned
    modules, tensors = _modules(aligned)
    tensors |= {PREFIX_REPLACE + name: tensor for name, tensor in placed.replaced.items()}
    tensors |= {PREFIX_HEAD + name: tensor for name, tensor in placed.headed.tensors.items()}
    header = CanonicalHeader(
        format=FORMAT,
        base_model=aligned.manifest.id,
        base_digest=aligned.manifest.digest,
        modules=dict(sorted(modules.items())),
        replaced=sorted(placed.replaced),
        head=_head(placed),
    )
    target = work_dir / CANONICAL_NAME
    digest = write_safetensors(target, tensors, header_metadata(header))
    size_bytes = target.stat().st_size
    return Canonical(target, digest, size_bytes, _facts(placed, counted, modules, tensors, size_bytes))


def matrices_of(aligned: Aligned, name: str) -> tuple[Tensor, Tensor]:
    """A and B of the upload's module ``name``; the checks on pairs have refused any without both."""
    pair = next(pair for pair in aligned.paired.pairs if pair.module == name)
    if pair.a is None or pair.b is None:
        raise ValueError(f"{name} lacks a matrix, which the checks on pairs must refuse")
    return pair.a, pair.b


def _modules(aligned: Aligned) -> tuple[dict[str, ModuleHeader], dict[str, Tensor]]:
    configuration, magnitudes = aligned.paired.configuration, aligned.paired.declared.sorted.magnitudes
    modules: dict[str, ModuleHeader] = {}
    tensors: dict[str, Tensor] = {}
    for name, path in aligned.paths.items():
        a, b = matrices_of(aligned, name)
        rank, magnitude = a.shape[0], magnitudes.get(name)
        modules[path] = ModuleHeader(rank=rank, scale=configuration.scale(name, rank), dora=magnitude is not None)
        tensors[path + SUFFIX_A], tensors[path + SUFFIX_B] = a, b
        if magnitude is not None:
            # some versions of PEFT kept it as a row, some as a column
            tensors[path + SUFFIX_MAGNITUDE] = replace(magnitude, shape=(magnitude.elements,))
    return modules, tensors


def _head(placed: Placed) -> HeadHeader | None:
    headed = placed.headed
    if not headed.tensors or headed.intended.task is None:
        return None
    return HeadHeader(headed.intended.task, headed.labels, sorted(headed.tensors), headed.problem)


def _facts(
    placed: Placed,
    counted: Counted,
    modules: dict[str, ModuleHeader],
    tensors: dict[str, Tensor],
    size_bytes: int,
) -> AdapterFacts:
    headed = placed.headed
    aligned, task = headed.intended.aligned, headed.intended.task
    return AdapterFacts(
        base_model=aligned.manifest.id,
        rank=max(module.rank for module in modules.values()),
        alpha=aligned.paired.configuration.alpha,
        targets=sorted({path.rsplit(".", 1)[-1] for path in modules}),
        modules=len(modules),
        tensors=len(tensors),
        dtype=", ".join(sorted({tensor.dtype for tensor in tensors.values()})),
        parameters=sum(tensor.elements for tensor in tensors.values()),
        size_bytes=size_bytes,
        has_effect=counted.has_effect,
        tasks=[task] if headed.tensors and task is not None else list(aligned.manifest.tasks),
        labels=headed.labels,
    )
