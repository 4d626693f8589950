"""Dense embeddings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wire.canonical import HeadHeader
from wire.jobs import EmbeddingInputs, EmbeddingOutputs, Task, TaskInputs
from workers.models.heads import States
from workers.models.protocol import PreparedInputs, RowOutput, TaskHead
from workers.models.readouts.protocol import expect, expect_some
from workers.models.sentence_files import SentenceSettings
from workers.models.tokens import TextTokenizer


class EmbedReadout:
    """Pooled states, as the model's sentence-transformers files say."""

    def __init__(self, tokenizer: TextTokenizer, settings: SentenceSettings) -> None:
        self._tokenizer = tokenizer
        self._settings = settings

    def prepare(self, inputs: TaskInputs) -> PreparedInputs:
        wanted = expect(inputs, EmbeddingInputs)
        expect_some(wanted.texts, "input")
        return self._tokenizer.prepare(
            wanted.texts,
            Task.EMBEDDINGS,
            truncate=wanted.truncate,
            prompt=self._settings.prompt(wanted.prompt_name, wanted.input_type),
            pool_prompt=self._settings.rule.pool_prompt,
        )

    def read(self, states: States, head: TaskHead | None) -> list[RowOutput]:
        return list(self._settings.rule.apply(states.hidden, states.mask, states.prompt_tokens).cpu().numpy())

    def finish(
        self, outputs: Sequence[RowOutput], prepared: PreparedInputs, header: HeadHeader | None
    ) -> EmbeddingOutputs:
        vectors = np.stack(outputs).astype("<f4", copy=False)
        return EmbeddingOutputs(vectors.shape[1], vectors.tobytes(), prepared.tokens, prepared.truncated)
