"""What a task adds to a model: its way from inputs to rows, from states to row outputs, and from those to answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from wire.canonical import HeadHeader
from wire.errors import Code, ShoalError
from wire.jobs import Outputs, TaskInputs
from workers.models.heads import States
from workers.models.protocol import PreparedInputs, RowOutput, TaskHead

InputsT = TypeVar("InputsT", bound=TaskInputs)


class Readout(Protocol):
    """One task of one model; see :class:`workers.models.protocol.ModelKind` for the verbs."""

    def prepare(self, inputs: TaskInputs) -> PreparedInputs: ...

    def read(self, states: States, head: TaskHead | None) -> list[RowOutput]: ...

    def finish(self, outputs: Sequence[RowOutput], prepared: PreparedInputs, header: HeadHeader | None) -> Outputs: ...


def expect(inputs: TaskInputs, kind: type[InputsT]) -> InputsT:
    """``inputs`` as those of the task. Raises ``ShoalError(INVALID_REQUEST)`` when they are another's."""
    if not isinstance(inputs, kind):
        raise ShoalError(
            Code.INVALID_REQUEST, f"The job has inputs of type {type(inputs).__name__}, its task takes {kind.__name__}."
        )
    return inputs


def expect_some(texts: Sequence[str], param: str) -> None:
    """Raises ``ShoalError(INPUT_EMPTY)`` when there are no texts."""
    if not texts:
        raise ShoalError(Code.INPUT_EMPTY, "The job has no texts.", param=param)
