"""The canonical artifact of a LoRA version: what validation writes and workers load.

One safetensors file. Tensors ``<module path>.lora_A`` with shape (rank, in_features) and ``<module path>.lora_B``
with shape (out_features, rank), each in the dtype of the upload (F32, F16 or BF16), by falling item size and
then by name, so that every tensor is aligned. The metadata has
one entry, ``shoal``, the JSON of :class:`CanonicalHeader` with sorted keys. Writing is deterministic, so the SHA-256
of the file is the version's digest: it covers tensors and effective configuration, and no file name, no archive order
and no inert configuration key. Served output is ``base(x) + scale * B(A(x))`` for each module
(LoRA, arXiv:2106.09685, section 4.1).
"""

from __future__ import annotations

import msgspec

METADATA_KEY = "shoal"
FORMAT = 1
SUFFIX_A = ".lora_A"
SUFFIX_B = ".lora_B"


class ModuleHeader(msgspec.Struct, frozen=True):
    """Effective configuration of one target module: rank and scale (alpha/r, or alpha/sqrt(r) with rsLoRA)."""

    rank: int
    scale: float


class CanonicalHeader(msgspec.Struct, frozen=True):
    """Effective configuration of a version. ``modules`` is keyed by the base model's module path."""

    format: int
    base_model: str
    base_digest: str
    modules: dict[str, ModuleHeader]
