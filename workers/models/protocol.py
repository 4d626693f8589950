"""What a kind of model must offer to be served: prepare, forward, finish, cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wire.canonical import HeadHeader
from wire.jobs import Outputs, Task, TaskInputs
from workers.packing.heads import TaskHead as TaskHead

Vectors = NDArray[np.float32]
RowOutput = NDArray[np.float32]
"""What one row gives, of any shape: a vector, scores per label, or scores per token and label."""


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How to load a model. ``adapter_bytes`` bounds the memory of all slots; ``None`` is unbounded.

    ``dtype`` is ``float32``, ``bfloat16``, ``float16``, or ``auto`` for the one that is fast on the device and still
    close to float32. ``generation_bytes`` bounds the
    keys and values of texts in the making. ``scratch`` is a directory for the small files of fine-tunes.
    """

    device: str = "cpu"
    slots: int = 128
    max_rank: int = 64
    adapter_bytes: int | None = None
    dtype: str = "float32"
    generation_bytes: int = 1 << 30
    scratch: Path | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence of token ids. ``type_ids`` are those of a pair of texts, ``None`` where all are 0.

    ``task`` says what is read out of the model's states for this row; ``prompt_tokens`` at its start are not pooled.
    """

    ids: list[int]
    task: Task
    type_ids: list[int] | None = None
    prompt_tokens: int = 0

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class PreparedInputs:
    """A job's inputs as rows. ``truncated`` counts texts that were cut, ``tokens`` those of all rows.

    ``spans`` has for each row the (start, end) characters of every token, and (0, 0) for special ones, where the task
    needs them. ``texts`` are the texts that the spans count in.
    """

    rows: list[Row]
    tokens: int
    truncated: int = 0
    spans: list[list[tuple[int, int]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


class ModelKind(Protocol):
    """One kind of model. ``prepare`` and ``build_head`` may run beside ``forward``; all else belongs to the device's
    thread.

    ``module`` is what slots are made in; ``tasks`` are those of the model without an adapter's head. Where a method
    takes a head, ``None`` stands for no head of an adapter: the model's own then counts, if it has one.
    """

    module: nn.Module
    max_tokens: int

    @property
    def dimension(self) -> int | None: ...

    @property
    def tasks(self) -> tuple[Task, ...]: ...

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that the model computes in."""
        ...

    def prepare(self, task: Task, inputs: TaskInputs, head: HeadHeader | None = None) -> PreparedInputs:
        """Tokenize. Raises ``ShoalError``: TASK_UNSUPPORTED when neither model nor head does ``task``, INPUT_EMPTY,
        INPUT_TOO_LONG when a text must not be cut and is too long.
        """
        ...

    def sample(self, length: int) -> Row:
        """A row of ``length`` tokens, to measure passes with."""
        ...

    def forward(self, rows: Sequence[Row], heads: Sequence[TaskHead | None]) -> list[RowOutput]:
        """One forward pass over all rows, each read out for its task by its own head, in the order given."""
        ...

    def finish(
        self, task: Task, outputs: Sequence[RowOutput], prepared: PreparedInputs, head: HeadHeader | None = None
    ) -> Outputs:
        """A job's outputs from those of its rows."""
        ...

    def cost(self, lengths: Sequence[int]) -> int:
        """Tokens that one forward pass over rows of these lengths computes, padding included."""
        ...

    def build_head(self, header: HeadHeader, tensors: Mapping[str, Tensor]) -> TaskHead:
        """The head of an adapter, in host memory. Raises ``ShoalError(ADAPTER_UNLOADABLE)`` when its tensors do not fit
        this model.
        """
        ...

    def adopt_head(self, head: TaskHead) -> None:
        """Answer with ``head`` from now on, as a version that was merged with it."""
        ...
