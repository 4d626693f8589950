"""Writes what the checks agreed on: the canonical artifact for workers, and a plain PEFT folder for the probe."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import msgspec

from loras.validation.alignment import Aligned
from loras.validation.configuration import Configuration, Json
from loras.validation.findings import passed
from loras.validation.header import Tensor
from loras.validation.numbers import Counted
from loras.validation.safetensors_writer import write_safetensors
from wire.canonical import FORMAT, METADATA_KEY, SUFFIX_A, SUFFIX_B, CanonicalHeader, ModuleHeader
from wire.reports import AdapterFacts, Row

CANONICAL_NAME = "canonical.safetensors"
PEFT_FOLDER = "peft"
# settings that PEFT itself computes rank and scale from: handed on as uploaded, never as computed here
_COPIED = ("lora_alpha", "use_rslora", "alpha_pattern", "rank_pattern", "fan_in_fan_out", "r")


@dataclass(frozen=True, slots=True)
class Canonical:
    """The written artifact: its path, SHA-256 and size."""

    path: Path
    digest: str
    size_bytes: int
    modules: dict[str, ModuleHeader]
    facts: AdapterFacts


def write_canonical(aligned: Aligned, counted: Counted, weights: Path, work_dir: Path) -> Canonical:
    """Write the canonical artifact of ``wire.canonical`` into ``work_dir``."""
    configuration = aligned.paired.configuration
    modules: dict[str, ModuleHeader] = {}
    tensors: dict[str, Tensor] = {}
    for name, path in aligned.paths.items():
        a, b = _matrices(aligned, name)
        rank = a.shape[0]
        modules[path] = ModuleHeader(rank=rank, scale=configuration.scale(name, rank))
        tensors[path + SUFFIX_A], tensors[path + SUFFIX_B] = a, b
    header = CanonicalHeader(
        format=FORMAT,
        base_model=aligned.manifest.id,
        base_digest=aligned.manifest.digest,
        modules=dict(sorted(modules.items())),
    )
    target = work_dir / CANONICAL_NAME
    text = msgspec.json.encode(header, order="sorted").decode()
    digest = write_safetensors(target, weights, tensors, {METADATA_KEY: text})
    size_bytes = target.stat().st_size
    return Canonical(target, digest, size_bytes, modules, _facts(aligned, counted, modules, tensors, size_bytes))


def check_canonical(written: Canonical) -> list[Row]:
    """The version's digest."""
    found = f"{written.size_bytes:,} bytes, SHA-256 {written.digest}"
    return [passed("Canonical artifact", found)]


def write_peft_folder(aligned: Aligned, weights: Path, work_dir: Path) -> Path:
    """Write the upload as PEFT would have saved it for this base: its tensors under plain keys, its own settings.

    It is the probe's independent reference, so ranks and scales computed for the canonical artifact do not enter it;
    only target_modules (from the tensors) and a missing ``r`` are filled in.
    """
    folder = work_dir / PEFT_FOLDER
    folder.mkdir()
    configuration = aligned.paired.configuration
    tensors = {}
    for name, path in aligned.paths.items():
        a, b = _matrices(aligned, name)
        tensors[f"base_model.model.{path}.lora_A.weight"] = a
        tensors[f"base_model.model.{path}.lora_B.weight"] = b
    settings = _settings(aligned, configuration)
    write_safetensors(folder / "adapter_model.safetensors", weights, tensors, {"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps(settings, indent=2, sort_keys=True))
    return folder


def _settings(aligned: Aligned, configuration: Configuration) -> Json:
    settings: Json = {key: configuration.raw[key] for key in _COPIED if configuration.raw.get(key) is not None}
    for key in ("rank_pattern", "alpha_pattern"):
        pattern = settings.get(key)
        if isinstance(pattern, dict):
            settings[key] = {_renamed(aligned, name): value for name, value in pattern.items()}
    if configuration.rank is None:
        ranks = {name: _matrices(aligned, name)[0].shape[0] for name in aligned.paths}
        settings["r"] = max(ranks.values())
        settings["rank_pattern"] = {aligned.paths[name]: rank for name, rank in ranks.items()}
    return settings | {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": aligned.manifest.id,
        "target_modules": sorted(aligned.paths.values()),
        "bias": "none",
        "inference_mode": True,
    }


def _renamed(aligned: Aligned, pattern: str) -> str:
    """A pattern's key, freed of the prefix that was taken off the modules it is meant for."""
    plain = pattern.removeprefix("^")
    for prefix in (aligned.removed, aligned.removed.replace(".", r"\.")):
        if prefix and plain.startswith(prefix):
            return aligned.added + plain[len(prefix) :]
    return pattern


def _matrices(aligned: Aligned, name: str) -> tuple[Tensor, Tensor]:
    pair = next(pair for pair in aligned.paired.pairs if pair.module == name)
    if pair.a is None or pair.b is None:
        raise ValueError(f"{name} lacks a matrix, which the checks on pairs must refuse")
    return pair.a, pair.b


def _facts(
    aligned: Aligned,
    counted: Counted,
    modules: dict[str, ModuleHeader],
    tensors: dict[str, Tensor],
    size_bytes: int,
) -> AdapterFacts:
    dtypes = sorted({tensor.dtype for tensor in tensors.values()})
    return AdapterFacts(
        base_model=aligned.manifest.id,
        rank=max(module.rank for module in modules.values()),
        alpha=aligned.paired.configuration.alpha,
        targets=sorted({path.rsplit(".", 1)[-1] for path in modules}),
        modules=len(modules),
        tensors=len(tensors),
        dtype=", ".join(dtypes),
        parameters=sum(tensor.elements for tensor in tensors.values()),
        size_bytes=size_bytes,
        has_effect=counted.has_effect,
    )
