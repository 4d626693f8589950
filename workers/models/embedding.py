"""Dense embedding encoders of the BERT family."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from wire.errors import Code, ShoalError
from wire.jobs import EmbeddingInputs, EmbeddingOutputs, Task
from workers.models.pooling import PoolingRule, read_pooling, to_mask
from workers.models.protocol import PreparedInputs, Vectors
from workers.models.tokens import TextTokenizer, read_tokenizer

# Position ids of these families start after the padding id, so their table has that many unusable rows.
_OFFSET_FAMILIES = frozenset({"roberta", "xlm-roberta", "camembert", "mpnet"})


class EmbeddingModel:
    """A transformers encoder with pooling; see :class:`workers.models.protocol.ModelKind`."""

    tasks: tuple[Task, ...] = (Task.EMBEDDINGS,)

    def __init__(
        self,
        module: nn.Module,
        tokenizer: TextTokenizer,
        rule: PoolingRule,
        *,
        dimension: int,
        device: torch.device,
    ) -> None:
        self.module = module
        self.max_tokens = tokenizer.max_tokens
        self.dimension = dimension
        self._tokenizer = tokenizer
        self._rule = rule
        self._device = device

    def prepare(self, inputs: EmbeddingInputs) -> PreparedInputs:
        return self._tokenizer.prepare(inputs)

    def forward(self, rows: Sequence[list[int]]) -> Tensor:
        width = max(map(len, rows))
        pad = self._tokenizer.pad_id
        ids = torch.tensor([row + [pad] * (width - len(row)) for row in rows]).to(self._device)
        mask = to_mask([len(row) for row in rows], width, self._device)
        hidden = self.module(input_ids=ids, attention_mask=mask).last_hidden_state
        return self._rule.apply(hidden, mask).to(torch.float32)

    def finish(self, vectors: Vectors, prepared: PreparedInputs) -> EmbeddingOutputs:
        return EmbeddingOutputs(
            dimension=self.dimension,
            vectors=vectors.astype("<f4", copy=False).tobytes(),
            tokens=prepared.tokens,
            truncated=prepared.truncated,
        )

    def cost(self, lengths: Sequence[int]) -> int:
        return len(lengths) * max(lengths, default=0)


def load_embedding_model(path: Path, device: torch.device) -> EmbeddingModel:
    """The encoder in ``path`` in float32, ready to run. Raises ``ShoalError(MODEL_UNLOADABLE)``."""
    from transformers import AutoConfig, AutoModel
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    rule = read_pooling(path)
    try:
        config = AutoConfig.from_pretrained(str(path), local_files_only=True)
        module = AutoModel.from_pretrained(str(path), config=config, dtype=torch.float32, local_files_only=True)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise ShoalError(Code.MODEL_UNLOADABLE, f"The weights in {path} cannot be loaded: {error}") from error
    module.requires_grad_(False).eval().to(device)
    pad_id = config.pad_token_id or 0
    tokenizer = read_tokenizer(path, max_tokens=_max_tokens(config, rule, pad_id), pad_id=pad_id)
    return EmbeddingModel(module, tokenizer, rule, dimension=int(config.hidden_size), device=device)


def _max_tokens(config: object, rule: PoolingRule, pad_id: int) -> int:
    positions = int(getattr(config, "max_position_embeddings", 512))
    if getattr(config, "model_type", "") in _OFFSET_FAMILIES:
        positions -= pad_id + 1
    return min(rule.max_tokens or positions, positions)
