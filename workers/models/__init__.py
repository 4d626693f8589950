"""Models behind one small protocol; :func:`load_model` picks the kind."""

from __future__ import annotations

from pathlib import Path

import torch

from wire.registry import ModelRecord
from workers.bundles import scratch_folder
from workers.merging import apply_artifact
from workers.models.embedding import load_embedding_model
from workers.models.loaded import LoadedModel
from workers.models.protocol import ModelOptions
from workers.packing.artifact import read_artifact
from workers.packing.store import PackedAdapters
from workers.sources import open_model
from workers.weights import weight_bytes

__all__ = ["LoadedModel", "ModelOptions", "load_model"]


def load_model(record: ModelRecord, *, options: ModelOptions, artifact: Path | None = None) -> LoadedModel:
    """Load a model with empty slots; a version's weights come from its canonical file ``artifact``.

    Raises ``ShoalError``: MODEL_UNLOADABLE when the files are missing, are no supported model, or their weight digest
    is not the registered one (an empty one is not checked), and what opening and applying an artifact raise.
    """
    device = torch.device(options.device)
    with scratch_folder() as scratch:
        kind = load_embedding_model(open_model(record, artifact, scratch), device)
    if record.base_digest is not None and artifact is not None:
        changes = read_artifact(artifact, expected_digest=record.artifact)
        apply_artifact(kind.module, changes, base_digest=record.base_digest)
    adapters = PackedAdapters(kind.module, slots=options.slots, limit_bytes=options.adapter_bytes, device=device)
    return LoadedModel(
        record=record, kind=kind, adapters=adapters, options=options, size_bytes=weight_bytes(kind.module)
    )
