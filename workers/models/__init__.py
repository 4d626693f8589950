"""Models behind one small protocol; :func:`load_model` picks the kind."""

from __future__ import annotations

from pathlib import Path

import torch

from wire.registry import ModelRecord
from workers.bundles import scratch_folder
from workers.merging import apply_artifact
from workers.models.causal import CausalModel, load_causal_model
from workers.models.encoder import Encoder, load_encoder
from workers.models.families import is_generative
from workers.models.folder import ModelFolder, open_folder
from workers.models.loaded import LoadedModel
from workers.models.protocol import ModelKind, ModelOptions
from workers.packing.artifact import AdapterArtifact, head_tensors, read_artifact
from workers.packing.store import PackedAdapters
from workers.sources import ARTIFACT_SOURCE, open_model

__all__ = ["LoadedModel", "ModelOptions", "load_model", "merge_version"]


def load_model(record: ModelRecord, *, options: ModelOptions, artifact: Path | None = None) -> LoadedModel:
    """Load a model with empty slots. ``artifact`` is the canonical file of a version with weights of its own.

    Raises ``ShoalError``: MODEL_UNLOADABLE when the files are missing, are no supported model, or their weight digest
    is not the record's (an empty one is not checked); what reading an artifact raises.
    """
    device = torch.device(options.device)
    with scratch_folder(options.scratch) as scratch:
        kind = _load_kind(record, open_folder(open_model(record, artifact, scratch)), options, device)
    if record.artifact is not None and artifact is not None and record.source != ARTIFACT_SOURCE:
        merge_version(record, kind, read_artifact(artifact, expected_digest=record.artifact), device)
    if isinstance(kind, Encoder):
        # last, so that merged weights are rounded once
        kind.settle_dtype(options.dtype, name=record.id)
    adapters = PackedAdapters(kind.module, slots=options.slots, limit_bytes=options.adapter_bytes, device=device)
    size_bytes = sum(weight.numel() * weight.element_size() for weight in kind.module.parameters())
    return LoadedModel(record=record, kind=kind, adapters=adapters, options=options, size_bytes=size_bytes)


def _load_kind(
    record: ModelRecord, folder: ModelFolder, options: ModelOptions, device: torch.device
) -> Encoder | CausalModel:
    if is_generative(folder.config(), folder.path):
        return load_causal_model(
            folder, name=record.id, dtype=options.dtype, device=device, cache_bytes=options.generation_bytes
        )
    return load_encoder(folder, device)


def merge_version(record: ModelRecord, kind: ModelKind, artifact: AdapterArtifact, device: torch.device) -> None:
    """Make the base model's copy in ``kind`` the version's own. Raises ``ShoalError(ADAPTER_UNLOADABLE)``."""
    apply_artifact(kind.module, artifact, base_digest=record.base_digest)
    header = artifact.header.head
    if header is not None:
        kind.adopt_head(kind.build_head(header, head_tensors(artifact)).to(device))
