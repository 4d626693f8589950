"""Relevance of documents for a query: by a cross-encoder where there is one, else by the cosine of two embeddings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wire.canonical import HeadHeader
from wire.jobs import RerankInputs, RerankOutputs, Task, TaskInputs
from workers.models.heads import States, run_head
from workers.models.protocol import PreparedInputs, RowOutput, TaskHead
from workers.models.readouts.classify import REGRESSION, sigmoid
from workers.models.readouts.embed import EmbedReadout
from workers.models.readouts.protocol import expect, expect_some
from workers.models.sentence_files import SentenceSettings
from workers.models.tokens import TextTokenizer

_QUERY_PROMPT, _DOCUMENT_PROMPTS = "query", ("document", "passage")


class CrossReadout:
    """A head with one output over query and document together. ``plain`` heads were trained to give their score as it
    is; the others' goes through a sigmoid, as sentence-transformers has it."""

    def __init__(self, tokenizer: TextTokenizer, *, plain: bool) -> None:
        self._tokenizer = tokenizer
        self._plain = plain

    def prepare(self, inputs: TaskInputs) -> PreparedInputs:
        wanted = expect(inputs, RerankInputs)
        expect_some(wanted.documents, "documents")
        return self._tokenizer.prepare_pairs(wanted.query, wanted.documents, Task.RERANK, truncate=wanted.truncate)

    def read(self, states: States, head: TaskHead | None) -> list[RowOutput]:
        return list(run_head(head, states).cpu().numpy())

    def finish(
        self, outputs: Sequence[RowOutput], prepared: PreparedInputs, header: HeadHeader | None
    ) -> RerankOutputs:
        scores = np.concatenate(outputs)
        plain = self._plain or (header is not None and header.problem == REGRESSION)
        return RerankOutputs((scores if plain else sigmoid(scores)).tolist(), prepared.tokens, prepared.truncated)


class CosineReadout:
    """Embeddings of the query (row 0) and of each document."""

    def __init__(self, embed: EmbedReadout, tokenizer: TextTokenizer, settings: SentenceSettings) -> None:
        self._embed = embed
        self._tokenizer = tokenizer
        self._settings = settings

    def prepare(self, inputs: TaskInputs) -> PreparedInputs:
        wanted = expect(inputs, RerankInputs)
        expect_some(wanted.documents, "documents")
        query = self._rows([wanted.query], self._prompt((_QUERY_PROMPT,)), truncate=wanted.truncate)
        documents = self._rows(wanted.documents, self._prompt(_DOCUMENT_PROMPTS), truncate=wanted.truncate)
        return PreparedInputs(
            rows=query.rows + documents.rows,
            tokens=query.tokens + documents.tokens,
            truncated=query.truncated + documents.truncated,
        )

    def read(self, states: States, head: TaskHead | None) -> list[RowOutput]:
        return self._embed.read(states, head)

    def finish(
        self, outputs: Sequence[RowOutput], prepared: PreparedInputs, header: HeadHeader | None
    ) -> RerankOutputs:
        vectors = np.stack(outputs)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return RerankOutputs((vectors[1:] @ vectors[0]).tolist(), prepared.tokens, prepared.truncated)

    def _rows(self, texts: Sequence[str], prompt: str, *, truncate: bool) -> PreparedInputs:
        return self._tokenizer.prepare(
            texts, Task.RERANK, truncate=truncate, prompt=prompt, pool_prompt=self._settings.rule.pool_prompt
        )

    def _prompt(self, names: Sequence[str]) -> str:
        """The first prompt of ``names`` that the model has, else its default."""
        return self._settings.prompt(next((name for name in names if name in self._settings.prompts), None))
