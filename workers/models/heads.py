"""Task heads of any family: transformers' own classes, with the body replaced by states that are computed already."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from wire.canonical import HeadHeader
from wire.errors import Code, ShoalError
from wire.jobs import Task
from workers.models.families import ENCODER_HALVES, build_empty
from workers.models.protocol import TaskHead

HeadT = TypeVar("HeadT", TaskHead, HeadHeader)
_NO_PAD_ID = -1


@dataclass(frozen=True, slots=True)
class States:
    """What the body gave for some rows: ``hidden`` (rows, tokens, dimension) in float32, ``pooled`` (rows, dimension)
    where the body has a pooler, ``ids`` and the 0/1 ``mask`` (rows, tokens), and the rows' ``prompt_tokens``."""

    hidden: Tensor
    pooled: Tensor | None
    ids: Tensor
    mask: Tensor
    prompt_tokens: list[int]

    def of(self, rows: list[int]) -> States:
        """The states of some rows, in the order given."""
        if rows == list(range(len(self.prompt_tokens))):
            return self
        numbers = torch.tensor(rows, device=self.hidden.device)
        return States(
            hidden=self.hidden.index_select(0, numbers),
            pooled=None if self.pooled is None else self.pooled.index_select(0, numbers),
            ids=self.ids.index_select(0, numbers),
            mask=self.mask.index_select(0, numbers),
            prompt_tokens=[self.prompt_tokens[row] for row in rows],
        )


class _BodyOutput:
    """What a body returns, for classes that read it by name or by place; what it did not make is ``None``."""

    def __init__(self, states: States) -> None:
        self.last_hidden_state = states.hidden
        self.pooler_output = states.pooled

    def __getattr__(self, name: str) -> None:
        return None

    def __getitem__(self, place: int) -> Tensor:
        found = (self.last_hidden_state, self.pooler_output)[place]
        if found is None:
            raise RuntimeError("a task head reads a pooler's output, and the model has no pooler")
        return found


class _Given(nn.Module):
    """Stands where a head's class holds its body."""

    def __init__(self) -> None:
        super().__init__()
        self.states: States | None = None

    def forward(self, *_: Any, **__: Any) -> _BodyOutput:
        if self.states is None:
            raise RuntimeError("a task head ran without states")
        return _BodyOutput(self.states)


def head_class(task: Task) -> Any:
    """The transformers class that puts heads of ``task`` on any family."""
    from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

    return AutoModelForTokenClassification if task is Task.TOKEN_CLASSIFY else AutoModelForSequenceClassification


def without_body(module: Any) -> tuple[nn.Module, nn.Module]:
    """(head, body) of an instance of a ``…For<Task>`` class; the head runs on given states from then on."""
    prefix = module.base_model_prefix
    body: nn.Module = getattr(module, prefix)
    setattr(module, prefix, _Given())
    return module, body


def run_head(head: TaskHead | None, states: States) -> Tensor:
    """Logits of a head: (rows, labels), or (rows, tokens, labels) for token classification."""
    module: Any = required(head).module
    given = getattr(module, module.base_model_prefix)
    # some heads look for the last token that is not the padding id, so what is behind a row must be that id
    ids = states.ids.masked_fill(states.mask == 0, module.config.pad_token_id)
    given.states = states
    try:
        logits: Tensor = module(input_ids=ids, attention_mask=states.mask).logits
    finally:
        given.states = None
    return logits


def required(head: HeadT | None) -> HeadT:
    """The head of a row whose readout runs one: the row was not prepared without."""
    if head is None:
        raise RuntimeError("a row that needs a task head came without one")
    return head


def make_head(header: HeadHeader, module: nn.Module) -> TaskHead:
    """A head whose weights are in ``module`` already, in float32."""
    config: Any = module.config
    if config.pad_token_id is None:
        config.pad_token_id = _NO_PAD_ID
    size = sum(parameter.numel() * parameter.element_size() for parameter in module.parameters())
    return TaskHead(header, module.requires_grad_(False).eval().to(torch.float32), size)


class HeadBuilder:
    """Heads of adapters for models of one configuration. Safe for several threads."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._empty: dict[tuple[Task, int], nn.Module] = {}

    def build(self, header: HeadHeader, tensors: Mapping[str, Tensor]) -> TaskHead:
        """The head of ``header`` with ``tensors`` by parameter name. Raises ``ShoalError(ADAPTER_UNLOADABLE)``."""
        empty = self._empty_head(header.task, len(header.labels))
        # the configuration is large and read only: copies share it
        module = copy.deepcopy(empty, {id(empty.config): empty.config})
        try:
            weights = {name: tensor.to(torch.float32) for name, tensor in tensors.items()}
            module.load_state_dict(weights, strict=True, assign=True)
        except RuntimeError as error:
            raise _unloadable(f"its head does not fit {type(module).__name__}: {_one_line(error)}") from error
        return make_head(header, module)

    def _empty_head(self, task: Task, labels: int) -> nn.Module:
        with self._lock:
            found = self._empty.get((task, labels))
            if found is None:
                found = self._empty[task, labels] = empty_head(self._config, task, labels)
            return found


def empty_head(config: Any, task: Task, labels: int) -> nn.Module:
    """A head without weights (meta device) for ``labels`` labels. Raises ``ShoalError(ADAPTER_UNLOADABLE)`` when the
    family has no such head."""
    refusal = _unloadable(f"models of type {config.model_type!r} take no head for {task.value}")
    if config.model_type in ENCODER_HALVES and task is not Task.TOKEN_CLASSIFY:
        raise refusal  # the other classes hold both halves
    config = copy.deepcopy(config)
    config.num_labels = labels
    try:
        head, _ = without_body(build_empty(head_class(task), config))
    except (ValueError, AttributeError, KeyError) as error:
        raise refusal from error
    if config.pad_token_id is None:
        head.config.pad_token_id = _NO_PAD_ID  # type: ignore[union-attr]
    return head


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:400]


def _unloadable(reason: str) -> ShoalError:
    return ShoalError(
        Code.ADAPTER_UNLOADABLE,
        f"The adapter cannot be loaded: {reason}.",
        hint="Push a version that was trained on this base model.",
    )
