"""Canonical files of merged versions and of fine-tunes, made from PEFT models and from model folders."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from safetensors.torch import load_file, save
from torch import Tensor

from wire.canonical import (
    FORMAT,
    METADATA_KEY,
    PREFIX_FILE,
    PREFIX_HEAD,
    PREFIX_REPLACE,
    SUFFIX_A,
    SUFFIX_B,
    SUFFIX_MAGNITUDE,
    CanonicalHeader,
    HeadHeader,
    ModuleHeader,
)
from wire.codec import encode_json


def canonical_of(
    peft: Any, *, prefix: str = "", head: HeadHeader | None = None, base_digest: str = "2" * 64
) -> tuple[dict[str, Tensor], CanonicalHeader]:
    """What validation makes of a PEFT model with one adapter: its tensors and header. ``prefix`` is the attribute that
    holds the base model in a class with a head; the tensors that ``head`` names are the adapter's saved modules."""
    tensors: dict[str, Tensor] = {}
    modules: dict[str, ModuleHeader] = {}
    replaced: list[str] = []
    inner = peft.base_model.model
    for full_path, layer in inner.named_modules():
        path = full_path.removeprefix(prefix)
        if hasattr(layer, "lora_A") and "default" in layer.lora_A:
            a = layer.lora_A["default"].weight
            magnitudes = getattr(layer, "lora_magnitude_vector", {})
            dora = "default" in magnitudes
            modules[path] = ModuleHeader(rank=a.shape[0], scale=layer.scaling["default"], dora=dora)
            tensors[path + SUFFIX_A] = a.detach().clone()
            tensors[path + SUFFIX_B] = layer.lora_B["default"].weight.detach().clone()
            if dora:
                tensors[path + SUFFIX_MAGNITUDE] = magnitudes["default"].weight.detach().clone()
    for name, parameter in inner.named_parameters():
        plain = name.replace(".base_layer.", ".")
        if ".modules_to_save.default." in name:
            plain = name.replace(".modules_to_save.default.", ".")
        elif not (name.endswith("bias") and parameter.requires_grad and "original_module" not in name):
            continue
        if head is not None and plain in head.tensors:
            tensors[PREFIX_HEAD + plain] = parameter.detach().clone()
            continue
        plain = plain.removeprefix(prefix)
        replaced.append(plain)
        tensors[PREFIX_REPLACE + plain] = parameter.detach().clone()
    header = CanonicalHeader(FORMAT, "base", base_digest, modules, replaced=sorted(replaced), head=head)
    return tensors, header


def write_canonical(
    folder: Path,
    tensors: dict[str, Tensor],
    header: CanonicalHeader,
    *,
    base_digest: str | None = None,
    rename: tuple[str, str] | None = None,
    drop: str = "",
) -> Path:
    """Write a canonical file, named by its digest; the options damage it for tests of refusals."""
    if base_digest is not None:
        header = msgspec.structs.replace(header, base_digest=base_digest)
    if rename is not None:
        tensors = {name.replace(*rename): tensor for name, tensor in tensors.items()}
        header = msgspec.structs.replace(
            header, modules={name.replace(*rename): module for name, module in header.modules.items()}
        )
    if drop:
        tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith(drop)}
    return _write(folder, tensors, header)


def write_bundle(folder: Path, model: Path, *, extra: dict[str, bytes] | None = None) -> Path:
    """The canonical file of the fine-tune in ``model``, a folder with one ``model.safetensors``."""
    tensors = load_file(model / "model.safetensors")
    files = {
        str(path.relative_to(model)): path.read_bytes()
        for path in sorted(model.rglob("*"))
        if path.is_file() and path.suffix != ".safetensors"
    } | (extra or {})
    for name, data in files.items():
        tensors[PREFIX_FILE + name] = torch.from_numpy(np.frombuffer(data, dtype=np.uint8).copy())
    return _write(folder, tensors, CanonicalHeader(FORMAT, "", "", {}, kind="full"))


def _write(folder: Path, tensors: dict[str, Tensor], header: CanonicalHeader) -> Path:
    data = save(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        metadata={"format": "pt", METADATA_KEY: encode_json(header).decode()},
    )
    path = folder / f"{hashlib.sha256(data).hexdigest()}.safetensors"
    path.write_bytes(data)
    return path
