"""Base models behind one small protocol; :func:`load_model` picks the kind."""

from __future__ import annotations

import torch

from wire.errors import Code, ShoalError
from wire.registry import ModelRecord
from workers.models.embedding import load_embedding_model
from workers.models.loaded import LoadedModel
from workers.models.protocol import ModelOptions
from workers.packing.store import PackedAdapters
from workers.sources import resolve_source, weights_digest

__all__ = ["LoadedModel", "ModelOptions", "load_model"]


def load_model(record: ModelRecord, *, options: ModelOptions) -> LoadedModel:
    """Load a base model with empty slots.

    Raises ``ShoalError(MODEL_UNLOADABLE)`` when the files are missing, are no supported model, or their
    weight digest is not ``record.digest`` (an empty one is not checked).
    """
    path = resolve_source(record.source)
    if record.digest:
        found = weights_digest(path)
        if found != record.digest:
            raise ShoalError(
                Code.MODEL_UNLOADABLE,
                f"The weights of {record.id} in {path} have digest {found}, registered is {record.digest}.",
                hint="Install the registered weights on this machine or register the base model again.",
            )
    device = torch.device(options.device)
    kind = load_embedding_model(path, device)
    adapters = PackedAdapters(kind.module, slots=options.slots, limit_bytes=options.adapter_bytes, device=device)
    size_bytes = sum(weight.numel() * weight.element_size() for weight in kind.module.parameters())
    return LoadedModel(record=record, kind=kind, adapters=adapters, options=options, size_bytes=size_bytes)
