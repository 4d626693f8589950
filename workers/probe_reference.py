"""The independent side of a probe: transformers' own classes and PEFT, one row at a time, without any padding."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from wire.errors import ShoalError
from wire.jobs import ClassifyInputs, EmbeddingInputs, GenerateInputs, RerankInputs, Task
from workers.models import LoadedModel
from workers.models.families import body_class, own_head_task
from workers.models.folder import ModelFolder
from workers.models.heads import head_class
from workers.models.pooling import PoolingRule
from workers.models.protocol import Row, RowOutput, TaskHead

TEXTS = [
    "A shoal moves as one.",
    "how do I reset the password of my account?",
    "The invoice was paid twice; please refund the second payment to the card that was used.",
    "def area(radius: float) -> float: return 3.14159 * radius ** 2",
    "Zürich, São Paulo, 東京",
    "Adapters change few weights of a model. " * 3,
]
HEAD_TASKS = (Task.CLASSIFY, Task.TOKEN_CLASSIFY)
_PREFERRED = (Task.GENERATE, Task.EMBEDDINGS, Task.CLASSIFY, Task.TOKEN_CLASSIFY, Task.RERANK)


def own_task(model: LoadedModel) -> Task:
    """The task that a model is compared on when the request names none of an adapter's head."""
    return next(task for task in _PREFERRED if task in model.kind.tasks)


def make_rows(model: LoadedModel, task: Task, head: TaskHead | None = None) -> list[Row]:
    """The probe's texts as the worker tokenizes them. Texts that the model is too short for are left out."""
    header = head.header if head is not None else None
    if task is Task.GENERATE:
        rows: list[Row] = []
        for text in TEXTS:
            try:
                rows += model.prepare(task, GenerateInputs(prompt=text)).rows
            except ShoalError:
                if text is TEXTS[-1] and not rows:
                    raise
        return rows
    if task in HEAD_TASKS:
        return model.prepare(task, ClassifyInputs(texts=TEXTS), header).rows
    if task is Task.RERANK:
        return model.prepare(task, RerankInputs(query=TEXTS[0], documents=TEXTS[1:]), header).rows
    return model.prepare(task, EmbeddingInputs(texts=TEXTS)).rows


def plain_network(folder: ModelFolder, task: Task, *, labels: Sequence[str] = (), problem: str = "") -> Any:
    """Transformers' class for ``task`` with the weights of ``folder``; ``labels`` are those of a head that an adapter
    brings. Raises ``ShoalError(MODEL_UNLOADABLE)``."""
    from transformers import AutoModelForCausalLM

    config = copy.deepcopy(folder.config())
    own = own_head_task(config)
    if task is Task.GENERATE:
        return folder.network(AutoModelForCausalLM, config)
    if task in HEAD_TASKS and labels:
        config.num_labels = len(labels)
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: number for number, label in enumerate(labels)}
        config.problem_type = problem or None
        return folder.network(head_class(task), config)
    return folder.network(head_class(own) if own is not None else body_class(config, folder.path), config)


def with_peft(plain: Any, folder: str) -> Any:
    """PEFT's model of the adapter in ``folder`` around ``plain``. Raises what PEFT raises."""
    from peft import PeftModel

    with warnings.catch_warnings():
        # of the libraries among themselves; nothing an uploader or an operator can act on
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", UserWarning)
        return PeftModel.from_pretrained(plain, folder, is_trainable=False).eval()


def one_by_one(model: Any, rows: Sequence[Row], rule: PoolingRule) -> list[RowOutput]:
    """What ``model`` gives for each row alone: a vector, logits of a head, or logits after the last token."""
    outputs: list[RowOutput] = []
    with torch.inference_mode():
        for row in rows:
            ids = torch.tensor([row.ids])
            mask = torch.ones_like(ids)
            more = {} if row.type_ids is None else {"token_type_ids": torch.tensor([row.type_ids])}
            found = model(input_ids=ids, attention_mask=mask, **more)
            if row.task is Task.EMBEDDINGS:
                value = rule.apply(found.last_hidden_state.float(), mask, [row.prompt_tokens])[0]
            elif row.task is Task.GENERATE:
                value = found.logits[0, -1]
            else:
                value = found.logits[0]
            outputs.append(value.to(torch.float32).numpy())
    return outputs
