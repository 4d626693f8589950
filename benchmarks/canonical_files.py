"""Random adapters as canonical files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save

from wire.canonical import FORMAT, METADATA_KEY, SUFFIX_A, SUFFIX_B, CanonicalHeader, ModuleHeader
from wire.codec import encode_json


def write_adapters(
    folder: Path, shapes: Mapping[str, tuple[int, int]], *, count: int, rank: int, base_model: str
) -> dict[str, Path]:
    """Files of ``count`` adapters by digest, over modules of the given (out_features, in_features)."""
    files = {}
    for number in range(count):
        generator = torch.Generator().manual_seed(number)
        tensors = {}
        for path, (outside, inside) in shapes.items():
            tensors[path + SUFFIX_A] = torch.randn((rank, inside), generator=generator) / inside**0.5
            tensors[path + SUFFIX_B] = torch.randn((outside, rank), generator=generator) * 0.01
        header = CanonicalHeader(FORMAT, base_model, "", {path: ModuleHeader(rank, 1.0) for path in shapes})
        data = save(tensors, metadata={METADATA_KEY: encode_json(header).decode()})
        digest = hashlib.sha256(data).hexdigest()
        files[digest] = folder / digest
        files[digest].write_bytes(data)
    return files
