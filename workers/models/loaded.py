"""A model on a device with the slots of its adapters."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from wire.canonical import HeadHeader
from wire.jobs import EmbeddingInputs, Task, TaskInputs
from wire.registry import ModelRecord
from workers.models.protocol import ModelKind, ModelOptions, PreparedInputs, Row, RowOutput, Vectors
from workers.packing.artifact import AdapterArtifact, PreparedAdapter, prepare_adapter
from workers.packing.store import PackedAdapters


@dataclass(slots=True)
class LoadedModel:
    """A served model: a base model, or a version with weights of its own. Everything but :meth:`prepare` and
    :meth:`prepare_artifact` belongs to the thread that owns the device.
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

    @property
    def dtype(self) -> str:
        """The dtype that the model computes in: ``float32``, ``bfloat16`` or ``float16``."""
        return str(self.kind.dtype).removeprefix("torch.")

    def prepare_artifact(self, digest: str, artifact: AdapterArtifact) -> PreparedAdapter:
        """Check an artifact against this model. Raises ``ShoalError(ADAPTER_UNLOADABLE)``."""
        return prepare_adapter(
            digest,
            artifact,
            self.adapters.shapes,
            model_digest=self.record.digest,
            max_rank=self.options.max_rank,
            make_head=self.kind.build_head,
            pinned=self.options.device.startswith("cuda"),
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

    def prepare(self, task: Task, inputs: TaskInputs, head: HeadHeader | None = None) -> PreparedInputs:
        """Tokenize a job's inputs; see :class:`ModelKind`."""
        return self.kind.prepare(task, inputs, head)

    def forward(self, rows: Sequence[Row], adapters: Sequence[str | None]) -> list[RowOutput]:
        """ONE forward pass over token rows of any mix of tasks and adapters: the rows' outputs in the order given.

        Each named adapter must be resident (``KeyError`` otherwise).
        """
        order, plan = self.adapters.plan(adapters)
        residents = [self.adapters.table.get(adapters[number] or "") for number in order]
        heads = [None if resident is None else resident.head for resident in residents]
        with torch.inference_mode(), self.adapters.running(plan):
            found = self.kind.forward([rows[number] for number in order], heads)
        outputs = dict(zip(order, found, strict=True))
        return [outputs[number] for number in range(len(rows))]

    def embed(self, texts: list[str], adapters: list[str | None]) -> Vectors:
        """Vectors of ``texts``, row ``i`` with the adapter ``adapters[i]`` or the base model alone for
        ``None``.

        One packed forward pass, float32 (rows, dimension); texts above the model's limit are cut.
        """
        if len(texts) != len(adapters):
            raise ValueError(f"{len(texts)} texts but {len(adapters)} adapters")
        prepared = self.prepare(Task.EMBEDDINGS, EmbeddingInputs(texts=texts))
        return np.stack(self.forward(prepared.rows, adapters))
