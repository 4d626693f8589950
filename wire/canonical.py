"""The canonical artifact of a version: what validation writes and workers load.

One safetensors file, tensors by falling item size and then by name, so that every tensor is aligned. The metadata has
``format`` = ``pt`` and ``shoal``, the JSON of :class:`CanonicalHeader` with sorted keys. Writing is deterministic, so
the SHA-256 of the file is the version's digest: it covers tensors and effective configuration, and no file name, no
archive order and no inert configuration key.

An adapter (``kind`` ``lora``) has, each in the dtype of the upload (F32, F16 or BF16):

- ``<module path>.lora_A`` (rank, in_features) and ``<module path>.lora_B`` (out_features, rank) for each of
  ``modules``. Served output is ``base(x) + scale * B(A(x))`` (LoRA, arXiv:2106.09685, section 4.1);
- ``<module path>.lora_magnitude`` (out_features,) where ``ModuleHeader.dora``: the weight is
  ``m * (W + scale * B A) / ||W + scale * B A||`` with norms over the input dimension (DoRA, arXiv:2402.09353, eq. 5);
- ``replace:<parameter>`` for each of ``replaced``: takes the place of the base model's parameter of that name
  (a trained bias, a whole saved module);
- ``head:<parameter>`` for each of ``head.tensors``: the task head, named as in ``wire.manifest.TaskHead``.

A fine-tune (``kind`` ``full``) has the model's tensors under the names its own files gave them, and the small files
beside them (``config.json``, ``tokenizer.json``, ``1_Pooling/config.json``, …) as one-dimensional U8 tensors
``file:<relative path>``.
"""

from __future__ import annotations

import msgspec

from wire.jobs import Task

METADATA_KEY = "shoal"
FORMAT = 1
SUFFIX_A = ".lora_A"
SUFFIX_B = ".lora_B"
SUFFIX_MAGNITUDE = ".lora_magnitude"
PREFIX_REPLACE = "replace:"
PREFIX_HEAD = "head:"
PREFIX_FILE = "file:"


class ModuleHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    """Effective configuration of one target module: rank and scale (alpha/r, or alpha/sqrt(r) with rsLoRA)."""

    rank: int
    scale: float
    dora: bool = False


class HeadHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    """The task head of an adapter: ``labels`` in order of the outputs, ``tensors`` the parameter names.

    ``problem`` is transformers' ``problem_type``: ``single_label_classification``, ``multi_label_classification`` or
    ``regression``.
    """

    task: Task
    labels: list[str]
    tensors: list[str]
    problem: str = "single_label_classification"


class CanonicalHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    """Effective configuration of a version. ``modules`` is keyed by the base model's module path, which is relative to
    the base model's own class also when the adapter brings a head."""

    format: int
    base_model: str
    base_digest: str
    modules: dict[str, ModuleHeader]
    kind: str = "lora"
    replaced: list[str] = []
    head: HeadHeader | None = None
