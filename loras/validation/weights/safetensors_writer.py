"""Writes safetensors files byte for byte the same from the same tensors."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from loras.validation.weights.header import ITEM_BYTES, Tensor
from loras.validation.weights.numbers import Reader

_ALIGNMENT = 8
_LENGTH_BYTES = 8


def write_safetensors(target: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> str:
    """Write ``tensors`` (new name → tensor wherever it lies) and return the file's SHA-256 (hex).

    Data lie by falling item size, then by name, so that every tensor is aligned, as safetensors' own writer does. A
    chunk at a time is in memory.
    """
    order = sorted(tensors, key=lambda name: (-ITEM_BYTES[tensors[name].dtype], name))
    header = _header(order, tensors, metadata)
    digest = hashlib.sha256()
    with target.open("xb") as out, Reader() as reader:
        for part in (len(header).to_bytes(_LENGTH_BYTES, "little"), header):
            digest.update(part)
            out.write(part)
        for name in order:
            for data in reader.chunks(tensors[name]):
                digest.update(data)
                out.write(data)
        out.flush()
        os.fsync(out.fileno())
    return digest.hexdigest()


def _header(order: list[str], tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> bytes:
    entries: dict[str, object] = {"__metadata__": metadata}
    position = 0
    for name in order:
        tensor = tensors[name]
        size = tensor.end - tensor.begin
        offsets = [position, position + size]
        entries[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": offsets}
        position += size
    text = json.dumps(entries, separators=(",", ":"), sort_keys=True).encode()
    return text + b" " * (-len(text) % _ALIGNMENT)
