"""Decoders that make text. ``workers.generation`` drives their forward passes, a step of many texts at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from wire.canonical import HeadHeader
from wire.errors import Code, ShoalError
from wire.jobs import GenerateInputs, Outputs, Sampling, Task, TaskInputs
from workers.generation.attention import ATTENTION, STEP, Step
from workers.generation.cache import KeyValueCache, LayerShape
from workers.generation.prefixes import Prefixes
from workers.generation.prompts import Prompts
from workers.generation.sampling import seed_of
from workers.generation.step import Layout
from workers.generation.text import Text
from workers.models.dtype import settle_dtype
from workers.models.encoder import Encoder
from workers.models.families import most_tokens
from workers.models.folder import ModelFolder
from workers.models.protocol import PreparedInputs, Row, RowOutput, TaskHead
from workers.models.sentence_files import SentenceSettings
from workers.models.tokens import TextTokenizer
from workers.packing.store import PackedAdapters

_SAMPLE = "A shoal is many small fish moving as one, each of which sees its neighbours alone."


class CausalModel:
    """A transformers decoder with its tokenizer and the cache of its texts; see ``workers.models.protocol``."""

    dimension: int | None = None

    def __init__(
        self,
        module: nn.Module,
        tokenizer: Any,
        *,
        name: str,
        max_tokens: int,
        end_tokens: frozenset[int],
        cache_bytes: int,
        device: torch.device,
    ) -> None:
        self.module = module
        self.reader = _reader(module, tokenizer, max_tokens)
        self.device = device
        self.dtype: torch.dtype = next(module.parameters()).dtype
        self._name = name
        self._end_tokens = end_tokens
        self.cache = KeyValueCache(
            _layer_shapes(module, device),
            dtype=self.dtype,
            device=device,
            limit_bytes=cache_bytes,
            most_tokens=max_tokens,
        )
        self.max_tokens = self.cache.most_tokens
        if self.max_tokens < 2:
            raise ShoalError(
                Code.MODEL_UNLOADABLE,
                f"The keys and values of one token take {self.cache.token_bytes} bytes, the budget is {cache_bytes}.",
                hint="Raise SHOAL_GENERATION_BYTES.",
            )
        self._prompts = Prompts(tokenizer, name=name, max_tokens=self.max_tokens)
        self.prefixes = Prefixes(cache_bytes)
        self.cache.reclaim = self.prefixes.shrink

    @property
    def tasks(self) -> tuple[Task, ...]:
        """What the model does without an adapter's head; a version that was merged with one reads texts instead."""
        return self.reader.tasks if self._reads(None) else (Task.GENERATE,)

    def _reads(self, head: HeadHeader | None) -> bool:
        return head is not None or self.reader.own_head is not None

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values, of texts in the making and of ended ones."""
        return self.cache.size_bytes + self.prefixes.size_bytes

    def prepare(self, task: Task, inputs: TaskInputs, head: HeadHeader | None = None) -> PreparedInputs:
        if self._reads(head):
            return self.reader.prepare(task, inputs, head)
        if task is not Task.GENERATE or not isinstance(inputs, GenerateInputs):
            raise ShoalError(Code.TASK_UNSUPPORTED, f"{self._name} does {Task.GENERATE.value}, not {task.value}.")
        ids = self._prompts.encode(inputs)
        return PreparedInputs(rows=[Row(ids, Task.GENERATE)], tokens=len(ids))

    def begin(self, job: str, adapter: str | None, prompt: list[int], sampling: Sampling) -> Text:
        """The text that continues ``prompt``, within the model's limit of tokens."""
        room = self.max_tokens - len(prompt)
        return Text(
            key=job,
            adapter=adapter,
            prompt=prompt,
            sampling=sampling,
            limit=min(sampling.max_tokens or room, room),
            seed=sampling.seed if sampling.seed is not None else seed_of(job),
            end_tokens=self._end_tokens,
            decode=self._prompts.decode,
            name=self._prompts.token_name,
        )

    def run(self, layout: Layout, adapters: PackedAdapters) -> Tensor:
        """The logits (rows, vocabulary) of the places that ``layout`` wants; keys and values go to the cache."""
        head = self.module.get_output_embeddings()  # type: ignore[operator]

        def narrow(module: nn.Module, arguments: Any) -> None:
            adapters.switch(layout.head_plan)

        with adapters.running(layout.plan), _before(head, narrow):
            return self._call(layout.ids, layout.places, layout.step, layout.heads)

    def sample(self, length: int) -> Row:
        return Row([0] * length, Task.GENERATE)

    def forward(self, rows: Sequence[Row], heads: Sequence[TaskHead | None]) -> list[RowOutput]:
        """Next-token logits after the last token of each row (vocabulary,), float32, without the cache; rows of
        versions that bring a classification head are read out by it."""
        if any(row.task is not Task.GENERATE for row in rows):
            return self.reader.forward(rows, heads)
        width = max(len(row) for row in rows)
        ids = torch.tensor([row.ids + [0] * (width - len(row)) for row in rows], device=self.device)
        # what follows a row is right of it, so a causal model's last token never sees the padding
        last = torch.tensor([[len(row) - 1] for row in rows], device=self.device)
        logits = self.module(input_ids=ids, use_cache=False, logits_to_keep=last).logits[:, 0]
        return list(logits.float().cpu().numpy())

    def finish(
        self, task: Task, outputs: Sequence[RowOutput], prepared: PreparedInputs, head: HeadHeader | None = None
    ) -> Outputs:
        if not self._reads(head):
            raise ShoalError(Code.TASK_UNSUPPORTED, "A text ends with its last step, not with a batch.")
        return self.reader.finish(task, outputs, prepared, head)

    def cost(self, lengths: Sequence[int]) -> int:
        return sum(lengths)

    def build_head(self, header: HeadHeader, tensors: Mapping[str, Tensor]) -> TaskHead:
        return self.reader.build_head(header, tensors)

    def adopt_head(self, head: TaskHead) -> None:
        self.reader.adopt_head(head)

    def _call(self, ids: Tensor, places: Tensor, step: Step, heads: Tensor | int) -> Tensor:
        # a mask of four dimensions is passed on as it is: the step's own masks count
        mask = torch.zeros((1, 1, 1, 1), dtype=self.dtype, device=self.device)
        found = self.module(
            input_ids=ids,
            position_ids=places,
            attention_mask=mask,
            use_cache=False,
            logits_to_keep=heads,
            **{STEP: step},
        )
        logits: Tensor = found.logits[0]
        return logits


@contextlib.contextmanager
def _before(module: nn.Module, hook: Callable[[nn.Module, Any], None]) -> Iterator[None]:
    """Call ``hook`` before each forward of ``module`` inside of the block."""
    handle = module.register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def load_causal_model(
    folder: ModelFolder, *, name: str, dtype: str, device: torch.device, cache_bytes: int
) -> CausalModel:
    """The decoder in ``folder``, ready to run; ``dtype`` may be ``auto``. Raises ``ShoalError(MODEL_UNLOADABLE)``."""
    from transformers import AutoModelForCausalLM

    config = folder.config()
    config._attn_implementation = ATTENTION
    module = folder.network(AutoModelForCausalLM, config).to(device=device)
    tokenizer = folder.pretrained_tokenizer()
    sample = torch.tensor([tokenizer(_SAMPLE, add_special_tokens=False)["input_ids"]], device=device)

    def passes() -> Tensor:
        logits: Tensor = module(input_ids=sample, use_cache=False).logits[0]
        return logits

    settle_dtype(module, dtype, passes, name=name)
    return CausalModel(
        module,
        tokenizer,
        name=name,
        max_tokens=most_tokens(config, None),
        end_tokens=_end_tokens(module, tokenizer),
        cache_bytes=cache_bytes,
        device=device,
    )


def _end_tokens(module: Any, tokenizer: Any) -> frozenset[int]:
    """Every token that ends a text, by configuration, generation configuration and tokenizer."""
    found: set[int] = set()
    for source in (module.config, module.generation_config, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        found.update(ids if isinstance(ids, list | tuple) else [] if ids is None else [ids])
    return frozenset(found)


def _reader(module: Any, tokenizer: Any, max_tokens: int) -> Encoder:
    """The decoder as a reader of texts, for rows whose adapter brings a head."""
    texts = TextTokenizer(tokenizer.backend_tokenizer, max_tokens=max_tokens, pad_id=module.config.pad_token_id or 0)
    return Encoder(module, texts, SentenceSettings(), body=module.base_model, embeds=False)


def _layer_shapes(module: nn.Module, device: torch.device) -> list[LayerShape]:
    """What each layer keeps of a token, seen in a pass over two tokens."""
    shapes: dict[int, LayerShape] = {}
    ids = torch.zeros((1, 2), dtype=torch.int64, device=device)
    with torch.inference_mode():
        module(input_ids=ids, position_ids=torch.tensor([[0, 1]], device=device), use_cache=False,
               **{STEP: Step([], shapes)})  # fmt: skip
    if not shapes or sorted(shapes) != list(range(len(shapes))):
        raise ShoalError(Code.MODEL_UNLOADABLE, "The model's attention layers cannot keep their keys and values.")
    return [shapes[layer] for layer in range(len(shapes))]
