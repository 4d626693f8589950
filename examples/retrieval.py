"""Retrieval quality through the OpenAI client: how often the right document is the nearest one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from openai import OpenAI

BATCH = 64


def embed(client: OpenAI, model: str, texts: list[str]) -> NDArray[np.float32]:
    """Unit vectors of ``texts``, shape (len(texts), dimension)."""
    rows: list[list[float]] = []
    for start in range(0, len(texts), BATCH):
        answer = client.embeddings.create(model=model, input=texts[start : start + BATCH])
        rows += [row.embedding for row in answer.data]
    vectors = np.asarray(rows, dtype=np.float32)
    lengths: NDArray[np.float32] = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / lengths


def recall_at(client: OpenAI, model: str, pairs: list[tuple[str, str]], *, at: int) -> float:
    """Share of queries whose own document is among the ``at`` most similar of all documents."""
    queries = embed(client, model, [query for query, _ in pairs])
    documents = embed(client, model, [document for _, document in pairs])
    scores = queries @ documents.T
    own = np.diagonal(scores)[:, None]
    return float(np.mean((scores > own).sum(axis=1) < at))
