"""The bounded queues between the stages and what travels in them."""

from __future__ import annotations

import queue
from dataclasses import dataclass, field

from wire.errors import ErrorInfo
from wire.frames import Ensure, Evict, Pin
from wire.jobs import ClassifyInputs, EmbeddingInputs, Inputs, RerankInputs
from wire.registry import ModelRecord
from workers.engine.shelf import ShelvedModel
from workers.engine.works import Work
from workers.models.loaded import LoadedModel
from workers.packing.artifact import PreparedAdapter

CAPACITY = 4096
_BULK_CHARACTERS = 65_536
"""A job with more text is tokenized apart: it takes longer than many short jobs together."""


@dataclass(frozen=True, slots=True)
class LoadAdapter:
    """Read the adapter of a job, then make the job ready."""

    work: Work


AdapterTask = LoadAdapter | Ensure


@dataclass(frozen=True, slots=True)
class MakeRoom:
    """Evict models until ``size_bytes`` more fit for ``model``; ``reply`` gets ``None`` or why they do not."""

    model: str
    size_bytes: int
    reply: queue.Queue[ErrorInfo | None]


@dataclass(frozen=True, slots=True)
class Adopt:
    """Serve a base model that was loaded."""

    shelved: ShelvedModel


@dataclass(frozen=True, slots=True)
class MakeResident:
    """Put an adapter into a slot and report it."""

    model: LoadedModel
    adapter: PreparedAdapter


DeviceCommand = MakeRoom | Adopt | MakeResident | Evict | Pin


@dataclass(frozen=True, slots=True)
class Pipes:
    """Queues into the stages; ``None`` ends a stage."""

    prepare: queue.Queue[Work | None] = field(default_factory=lambda: queue.Queue(CAPACITY))
    prepare_bulk: queue.Queue[Work | None] = field(default_factory=lambda: queue.Queue(CAPACITY))
    # an entry per job at most, and credit bounds the jobs; a bound here could lock loader and device against each other
    adapters: queue.SimpleQueue[AdapterTask | None] = field(default_factory=queue.SimpleQueue)
    models: queue.SimpleQueue[ModelRecord | None] = field(default_factory=queue.SimpleQueue)
    device: queue.SimpleQueue[DeviceCommand] = field(default_factory=queue.SimpleQueue)

    def to_prepare(self, work: Work) -> None:
        """Send a job to the tokenizer's stage for its size."""
        bulk = _characters(work.job.inputs) > _BULK_CHARACTERS
        (self.prepare_bulk if bulk else self.prepare).put(work)

    def resume(self, waiting: Work | Ensure) -> None:
        """Send what waited for a model on its way."""
        if isinstance(waiting, Ensure):
            self.adapters.put(waiting)
        else:
            self.to_prepare(waiting)

    def close(self) -> None:
        """End the stages after what is queued."""
        self.prepare.put(None)
        self.prepare_bulk.put(None)
        self.adapters.put(None)
        self.models.put(None)


def _characters(inputs: Inputs) -> int:
    """How much text a job brings; prompts to continue are one text and bounded by their model."""
    if isinstance(inputs, EmbeddingInputs | ClassifyInputs):
        return sum(map(len, inputs.texts))
    return sum(map(len, inputs.documents)) if isinstance(inputs, RerankInputs) else 0
