"""What a kind of model must offer to be served: prepare, forward, finish, cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from wire.jobs import EmbeddingInputs, EmbeddingOutputs, Task

Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How to load a model. ``adapter_bytes`` bounds the memory of all slots; ``None`` is unbounded."""

    device: str = "cpu"
    slots: int = 128
    max_rank: int = 64
    adapter_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PreparedInputs:
    """A job's inputs as token ids, one list per row. ``truncated`` counts rows that were cut."""

    rows: list[list[int]]
    tokens: int
    truncated: int = 0


class ModelKind(Protocol):
    """One kind of model. ``prepare`` may run beside ``forward``; all else belongs to the device's thread."""

    module: nn.Module
    tasks: tuple[Task, ...]
    max_tokens: int
    dimension: int

    def prepare(self, inputs: EmbeddingInputs) -> PreparedInputs:
        """Tokenize. Raises ``ShoalError``: INPUT_TOO_LONG when a text must not be cut and is too long."""
        ...

    def forward(self, rows: Sequence[list[int]]) -> Tensor:
        """One forward pass over all rows: float32 (rows, dimension), in the order given."""
        ...

    def finish(self, vectors: Vectors, prepared: PreparedInputs) -> EmbeddingOutputs:
        """A job's outputs from its rows' vectors (rows, dimension)."""
        ...

    def cost(self, lengths: Sequence[int]) -> int:
        """Tokens that one forward pass over rows of these lengths computes, padding included."""
        ...
