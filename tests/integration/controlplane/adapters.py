"""Real LoRA files for MiniLM, small and made in memory."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
from safetensors.numpy import save

from tests.integration.controlplane.site import MINILM

LAYER = "base_model.model.encoder.layer.{}.attention.self.{}"


def lora_files(
    seed: int, *, rank: int = 4, base: str | None = MINILM, effect: bool = True, alpha: int = 8
) -> dict[str, bytes]:
    """``adapter_model.safetensors`` and ``adapter_config.json`` of a LoRA on query and value of two layers."""
    random = np.random.default_rng(seed)
    tensors = {}
    for layer in (0, 3):
        for target in ("query", "value"):
            name = LAYER.format(layer, target)
            tensors[f"{name}.lora_A.weight"] = random.normal(0, 0.05, (rank, 384)).astype(np.float32)
            scale = 0.05 if effect else 0.0
            tensors[f"{name}.lora_B.weight"] = (random.normal(0, 1, (384, rank)) * scale).astype(np.float32)
    config = {
        "peft_type": "LORA",
        "task_type": "FEATURE_EXTRACTION",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": alpha,
        "target_modules": ["query", "value"],
        "bias": "none",
    }
    return {"adapter_model.safetensors": save(tensors), "adapter_config.json": json.dumps(config).encode()}


def zipped(files: dict[str, bytes], *, folder: str = "adapter", level: int = 6) -> bytes:
    """The files in one folder of a zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        for name, data in files.items():
            archive.writestr(f"{folder}/{name}", data)
    return buffer.getvalue()


def multipart(files: dict[str, bytes]) -> list[tuple[str, tuple[str, bytes]]]:
    """As loose files of one form."""
    return [("files[]", (name, data)) for name, data in files.items()]
