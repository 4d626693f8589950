"""Models that read texts: one body for rows of every task, and what each task reads out of its states."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from wire.canonical import HeadHeader
from wire.errors import Code, ShoalError
from wire.jobs import Outputs, Task, TaskInputs
from workers.models.dtype import settle_dtype
from workers.models.families import body_class, head_labels, most_tokens, own_head_task
from workers.models.folder import ModelFolder
from workers.models.heads import HeadBuilder, States, head_class, make_head, without_body
from workers.models.pooling import to_mask
from workers.models.protocol import PreparedInputs, Row, RowOutput, TaskHead
from workers.models.readouts.classify import ClassifyReadout
from workers.models.readouts.embed import EmbedReadout
from workers.models.readouts.protocol import Readout
from workers.models.readouts.rerank import CosineReadout, CrossReadout
from workers.models.readouts.token_classify import TokenClassifyReadout
from workers.models.sentence_files import SentenceSettings, read_sentence_settings
from workers.models.tokens import TextTokenizer

_SAMPLES = (
    "The seal of pump 7 was replaced after it had lost pressure twice in one week.",
    "How do I reset the password of my account?",
    "A shoal is many small fish moving as one, each of which sees its neighbours alone.",
    "Invoice 4711 is due.",
)


class Encoder:
    """A body with readouts; see :class:`workers.models.protocol.ModelKind`.

    ``module`` is what slots are made in; ``body``, a part of it or itself, gives the hidden states.
    """

    def __init__(
        self,
        module: nn.Module,
        tokenizer: TextTokenizer,
        settings: SentenceSettings,
        *,
        body: nn.Module | None = None,
        own_head: TaskHead | None = None,
        plain_scores: bool = False,
        embeds: bool = True,
    ) -> None:
        self.module = module
        self.body: Any = module if body is None else body
        config: Any = self.body.config
        self._device = next(module.parameters()).device
        self.dtype: torch.dtype = next(module.parameters()).dtype
        self.max_tokens = tokenizer.max_tokens
        self._tokenizer = tokenizer
        self.own_head = own_head
        self._heads = HeadBuilder(config)
        taken = inspect.signature(self.body.forward).parameters
        self._takes_types = "token_type_ids" in taken
        # decoders would keep the keys and values of texts that nobody continues
        self._fixed = {"use_cache": False} if "use_cache" in taken else {}
        embed = EmbedReadout(tokenizer, settings)
        self._readouts: dict[Task, Readout] = {
            Task.CLASSIFY: ClassifyReadout(tokenizer),
            Task.TOKEN_CLASSIFY: TokenClassifyReadout(tokenizer),
        }
        if embeds and own_head is None:
            self._readouts[Task.EMBEDDINGS] = embed
            self._readouts[Task.RERANK] = CosineReadout(embed, tokenizer, settings)
        self._cross = CrossReadout(tokenizer, plain=plain_scores)
        self.dimension = settings.dimension(int(config.hidden_size))

    @property
    def tasks(self) -> tuple[Task, ...]:
        """What the model does without an adapter's head."""
        return tuple(task for task in Task if self._find(task, None) is not None)

    def settle_dtype(self, wanted: str, *, name: str) -> None:
        """Compute in ``wanted``; ``auto`` measures which dtype is better here."""
        rows = self._tokenizer.prepare(_SAMPLES, Task.EMBEDDINGS).rows

        def passes() -> Tensor:
            # a full batch and a single text: a dtype that is fast in one can be slow in the other
            states = [self._states(rows * 4), self._states(rows[:1])]
            sums = [(one.hidden * one.mask.unsqueeze(-1)).sum(dim=1) for one in states]
            return torch.cat(sums)

        self.dtype = settle_dtype(self.module, wanted, passes, name=name)

    def prepare(self, task: Task, inputs: TaskInputs, head: HeadHeader | None = None) -> PreparedInputs:
        return self._readout(task, head).prepare(inputs)

    def sample(self, length: int) -> Row:
        row = self._tokenizer.prepare(["a"], self.tasks[0] if self.tasks else Task.EMBEDDINGS).rows[0]
        return Row((row.ids * length)[:length], row.task)

    def forward(self, rows: Sequence[Row], heads: Sequence[TaskHead | None]) -> list[RowOutput]:
        states = self._states(rows)
        groups: dict[tuple[int, int], tuple[Readout, TaskHead | None, list[int]]] = {}
        for number, (row, brought) in enumerate(zip(rows, heads, strict=True)):
            head = brought or self.own_head
            readout = self._readout(row.task, head.header if head is not None else None)
            groups.setdefault((id(readout), id(head)), (readout, head, []))[2].append(number)
        outputs: dict[int, RowOutput] = {}
        for readout, head, numbers in groups.values():
            outputs.update(zip(numbers, readout.read(states.of(numbers), head), strict=True))
        return [outputs[number] for number in range(len(rows))]

    def finish(
        self, task: Task, outputs: Sequence[RowOutput], prepared: PreparedInputs, head: HeadHeader | None = None
    ) -> Outputs:
        return self._readout(task, head).finish(outputs, prepared, head or self.own_header)

    def cost(self, lengths: Sequence[int]) -> int:
        return len(lengths) * max(lengths, default=0)

    def build_head(self, header: HeadHeader, tensors: Mapping[str, Tensor]) -> TaskHead:
        return self._heads.build(header, tensors)

    def adopt_head(self, head: TaskHead) -> None:
        self.own_head = head

    @property
    def own_header(self) -> HeadHeader | None:
        return None if self.own_head is None else self.own_head.header

    def _states(self, rows: Sequence[Row]) -> States:
        device = self._device
        lengths = [len(row) for row in rows]
        width, pad = max(lengths), self._tokenizer.pad_id
        ids = torch.tensor([row.ids + [pad] * (width - len(row)) for row in rows]).to(device)
        mask = to_mask(lengths, width, device)
        more: dict[str, Tensor] = {}
        if self._takes_types and any(row.type_ids for row in rows):
            types = [(row.type_ids or [0] * len(row)) + [0] * (width - len(row)) for row in rows]
            more["token_type_ids"] = torch.tensor(types).to(device)
        found = self.body(input_ids=ids, attention_mask=mask, **self._fixed, **more)
        pooled = getattr(found, "pooler_output", None)
        return States(
            hidden=found.last_hidden_state.to(torch.float32),
            pooled=None if pooled is None else pooled.to(torch.float32),
            ids=ids,
            mask=mask,
            prompt_tokens=[row.prompt_tokens for row in rows],
        )

    def _readout(self, task: Task, head: HeadHeader | None) -> Readout:
        found = self._find(task, head)
        if found is None:
            done = [one.value for one in Task if self._find(one, head) is not None]
            owner = "The version's head" if head is not None else "The model"
            raise ShoalError(
                Code.TASK_UNSUPPORTED,
                f"{owner} does not do {task.value}, it does {', '.join(done) or 'nothing of this kind'}.",
                param="model",
            )
        return found

    def _find(self, task: Task, head: HeadHeader | None) -> Readout | None:
        header = head or self.own_header
        if header is None:
            # no head to run
            return None if task in (Task.CLASSIFY, Task.TOKEN_CLASSIFY) else self._readouts.get(task)
        if task is Task.RERANK and header.task is not Task.TOKEN_CLASSIFY and len(header.labels) == 1:
            return self._cross
        return self._readouts[task] if task is header.task and task in self._readouts else None


def load_encoder(folder: ModelFolder, device: torch.device) -> Encoder:
    """The encoder in ``folder`` in float32, ready to run. Raises ``ShoalError(MODEL_UNLOADABLE)``."""
    settings = read_sentence_settings(folder.path)
    config = folder.config()
    settings = replace(settings, rule=settings.rule.to(device))
    tokenizer = read_tokenizer(folder, config, settings)
    task = own_head_task(config)
    if task is None:
        module = folder.network(body_class(config, folder.path), config).to(device)
        return Encoder(module, tokenizer, settings)
    head, body = without_body(folder.network(head_class(task), config))
    labels, problem = head_labels(config)
    names = [name for name, _ in head.named_parameters()]
    own = make_head(HeadHeader(task, labels, names, problem=problem), head).to(device)
    return Encoder(body.to(device), tokenizer, settings, own_head=own, plain_scores=_plain_scores(config))


def read_tokenizer(folder: ModelFolder, config: Any, settings: SentenceSettings) -> TextTokenizer:
    """The tokenizer of a model folder with the model's limit. Raises ``ShoalError(MODEL_UNLOADABLE)``."""
    return TextTokenizer(
        folder.tokenizer(),
        max_tokens=most_tokens(config, settings.max_tokens),
        pad_id=config.pad_token_id or 0,
        lower=settings.lower,
    )


def _plain_scores(config: Any) -> bool:
    """Whether sentence-transformers leaves a cross-encoder's output as it is."""
    settings = getattr(config, "sentence_transformers", None) or {}
    named = settings.get("activation_fn") or getattr(config, "sbert_ce_default_activation_function", None) or ""
    return str(named).endswith("Identity")
