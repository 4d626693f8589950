"""Writes the upload as PEFT would have saved it for this base: the independent reference of the probe."""

from __future__ import annotations

import json
from pathlib import Path

from loras.validation.lora.alignment import Aligned
from loras.validation.lora.canonical import matrices_of
from loras.validation.lora.configuration import Configuration, Json
from loras.validation.lora.whole import Placed
from loras.validation.weights.header import Tensor
from loras.validation.weights.safetensors_writer import write_safetensors

PEFT_FOLDER = "peft"
_KEY = "base_model.model."
# settings that PEFT itself computes rank and scale from: handed on as uploaded, never as computed here
_COPIED = ("lora_alpha", "use_rslora", "use_dora", "alpha_pattern", "rank_pattern", "fan_in_fan_out", "r")


def write_peft_folder(placed: Placed, work_dir: Path) -> Path:
    """Write adapter_config.json and adapter_model.safetensors below ``work_dir`` and return their folder.

    Ranks and scales computed for the canonical artifact do not enter them; only target_modules (from the tensors), a
    missing ``r`` and the whole modules are filled in. Keys are those of the model class for the adapter's task.
    """
    folder = work_dir / PEFT_FOLDER
    folder.mkdir()
    aligned = placed.headed.intended.aligned
    paths = {name: _in_task_class(placed, path) for name, path in aligned.paths.items()}
    magnitudes = aligned.paired.declared.sorted.magnitudes
    tensors: dict[str, Tensor] = {}
    for name, path in paths.items():
        a, b = matrices_of(aligned, name)
        tensors[f"{_KEY}{path}.lora_A.weight"] = a
        tensors[f"{_KEY}{path}.lora_B.weight"] = b
        if name in magnitudes:
            tensors[f"{_KEY}{path}.lora_magnitude_vector"] = magnitudes[name]
    whole, saved = _whole(placed, set(paths.values()))
    settings = _settings(aligned, aligned.paired.configuration, paths) | {"modules_to_save": saved or None}
    write_safetensors(folder / "adapter_model.safetensors", tensors | whole, {"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps(settings, indent=2, sort_keys=True))
    return folder


def _in_task_class(placed: Placed, path: str) -> str:
    """A module's path in transformers' class for the task, which may hold the base one attribute deeper."""
    head = placed.headed.intended.head
    if head is None or not head.prefix or path.startswith(f"{head.prefix}."):
        return path
    return f"{head.prefix}.{path}"


def _whole(placed: Placed, targets: set[str]) -> tuple[dict[str, Tensor], list[str]]:
    """Whole tensors by key, and the modules that PEFT has to keep as trained whole."""
    tensors: dict[str, Tensor] = {}
    saved = {name.split(".")[0] for name in placed.headed.tensors}
    for name, tensor in placed.headed.tensors.items():
        tensors[_KEY + name] = tensor
    for name, tensor in placed.replaced.items():
        module, _, parameter = _in_task_class(placed, name).rpartition(".")
        if module in targets:
            tensors[f"{_KEY}{module}.base_layer.{parameter}"] = tensor
            continue
        tensors[f"{_KEY}{module}.{parameter}"] = tensor
        if parameter != "bias":
            saved.add(module)
    return tensors, sorted(saved)


def _settings(aligned: Aligned, configuration: Configuration, paths: dict[str, str]) -> Json:
    settings: Json = {key: configuration.raw[key] for key in _COPIED if configuration.raw.get(key) is not None}
    for key in ("rank_pattern", "alpha_pattern"):
        pattern = settings.get(key)
        if isinstance(pattern, dict):
            settings[key] = {_renamed(aligned, name): value for name, value in pattern.items()}
    if configuration.rank is None:
        ranks = {name: matrices_of(aligned, name)[0].shape[0] for name in paths}
        settings["r"] = max(ranks.values())
        settings["rank_pattern"] = {paths[name]: rank for name, rank in ranks.items()}
    return settings | {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": aligned.manifest.id,
        "target_modules": sorted(paths.values()),
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
