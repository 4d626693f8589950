"""A base model on a device with the slots of its adapters."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from wire.jobs import EmbeddingInputs
from wire.registry import ModelRecord
from workers.models.protocol import ModelKind, ModelOptions, Vectors
from workers.packing.artifact import AdapterArtifact, PreparedAdapter, prepare_adapter
from workers.packing.store import PackedAdapters


@dataclass(slots=True)
class LoadedModel:
    """A served base model. Everything but :meth:`prepare_artifact` belongs to the thread that owns the
    device.
    """

    record: ModelRecord
    kind: ModelKind
    adapters: PackedAdapters
    options: ModelOptions
    size_bytes: int

    @property
    def key(self) -> str:
        """Names these very weights: a model that is registered anew keeps its id and nothing else."""
        return f"{self.record.id}@{self.record.digest}"

    def prepare_artifact(self, digest: str, artifact: AdapterArtifact) -> PreparedAdapter:
        """Check an artifact against this model. Raises ``ShoalError(ADAPTER_UNLOADABLE)``."""
        return prepare_adapter(
            digest,
            artifact,
            self.adapters.shapes,
            model_digest=self.record.digest,
            max_rank=self.options.max_rank,
        )

    def load_adapter(
        self, digest: str, artifact: AdapterArtifact | PreparedAdapter, *, in_use: Collection[str] = ()
    ) -> list[str]:
        """Make an adapter resident; returns the digests evicted for it, none of them in ``in_use``.

        Raises ``ShoalError``: ADAPTER_UNLOADABLE when it does not fit this model, OUT_OF_MEMORY when no slot
        is free.
        """
        prepared = artifact if isinstance(artifact, PreparedAdapter) else self.prepare_artifact(digest, artifact)
        return self.adapters.load(prepared, in_use=in_use, now=time.time())

    def unload_adapter(self, digest: str) -> None:
        """Free the adapter's slot and leave nothing of it behind."""
        self.adapters.unload(digest)

    def forward(self, rows: Sequence[list[int]], adapters: Sequence[str | None]) -> Vectors:
        """ONE forward pass over token rows of any mix of adapters: float32 (rows, dimension), in the order
        given.

        Each named adapter must be resident (``KeyError`` otherwise).
        """
        order, plan = self.adapters.plan(adapters)
        with torch.inference_mode(), self.adapters.running(plan):
            found = self.kind.forward([rows[number] for number in order]).cpu().numpy()
        vectors = np.empty_like(found)
        vectors[order] = found
        return vectors

    def embed(self, texts: list[str], adapters: list[str | None]) -> Vectors:
        """Vectors of ``texts``, row ``i`` with the adapter ``adapters[i]`` or the base model alone for
        ``None``.

        One packed forward pass, float32 (rows, dimension); texts above the model's limit are cut.
        """
        if len(texts) != len(adapters):
            raise ValueError(f"{len(texts)} texts but {len(adapters)} adapters")
        return self.forward(self.kind.prepare(EmbeddingInputs(texts=texts)).rows, adapters)
