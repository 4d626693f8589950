"""JSON of an embeddings answer. The hot end of a request: one encoder, no copies of rows beyond the JSON itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from gateway.answers import encoder
from wire.jobs import EmbeddingOutputs

FLOAT_BYTES = 4


class Embedding(msgspec.Struct, frozen=True):
    """One vector; a ``memoryview`` is written as Base64 of its little-endian float32."""

    index: int
    embedding: Sequence[float] | memoryview
    object: Literal["embedding"] = "embedding"


class Usage(msgspec.Struct, frozen=True):
    """Tokens that the model read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(msgspec.Struct, frozen=True):
    """OpenAI's list of embeddings."""

    data: list[Embedding]
    model: str
    usage: Usage
    object: Literal["list"] = "list"


def embeddings_json(outputs: EmbeddingOutputs, *, model: str, as_base64: bool) -> bytes:
    """The answer's body: vectors in input order, as numbers or as Base64."""
    dimension = outputs.dimension
    raw = memoryview(outputs.vectors)
    rows: list[Embedding]
    if as_base64:
        step = dimension * FLOAT_BYTES
        rows = [Embedding(index, raw[start : start + step]) for index, start in enumerate(range(0, len(raw), step))]
    else:
        floats = raw.cast("f").tolist()
        rows = [
            Embedding(index, floats[start : start + dimension])
            for index, start in enumerate(range(0, len(floats), dimension))
        ]
    usage = Usage(prompt_tokens=outputs.tokens, total_tokens=outputs.tokens)
    return encoder.encode(EmbeddingsAnswer(data=rows, model=model, usage=usage))
