"""Answers of a simulated device: made of the text and the digests of model and adapter, and of nothing else."""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Sequence

from wire.errors import Code, ShoalError
from wire.jobs import (
    ClassifyInputs,
    ClassifyOutputs,
    EmbeddingInputs,
    EmbeddingOutputs,
    Entity,
    GenerateInputs,
    GenerateOutputs,
    Job,
    Outputs,
    RerankInputs,
    RerankOutputs,
    Task,
    TokenClassifyOutputs,
)
from wire.registry import ModelRecord

LABELS = ["LABEL_0", "LABEL_1"]
WORDS = ("blue", "cold", "deep", "fish", "green", "quick", "salt", "shoal", "silver", "tide", "water", "wave")
TOKEN_CHARACTERS = 4
DEFAULT_DIMENSION = 8
DEFAULT_MAX_TOKENS = 32
_VALUES = [byte / 127.5 - 1.0 for byte in range(256)]


def texts_of(job: Job) -> list[str]:
    """The rows of ``job``, one text each. Raises ``ShoalError`` for inputs that are none of its task's."""
    match job.inputs:
        case EmbeddingInputs(texts=texts) if job.task is Task.EMBEDDINGS:
            found = texts
        case ClassifyInputs(texts=texts) if job.task in (Task.CLASSIFY, Task.TOKEN_CLASSIFY):
            found = texts
        case RerankInputs(query=query, documents=documents) if job.task is Task.RERANK:
            found = [f"{query}\n{document}" for document in documents]
        case GenerateInputs(messages=messages, prompt=prompt) if job.task is Task.GENERATE:
            found = ["\n".join([*(f"{one.role}: {one.content}" for one in messages), prompt])]
        case _:
            raise ShoalError(Code.INVALID_REQUEST, f"The job's inputs are not those of {job.task.value}.")
    if not found:
        raise ShoalError(Code.INPUT_EMPTY, "The job has no texts.", param="input")
    return found


def lengths_of(job: Job, texts: Sequence[str], max_tokens: int) -> list[int]:
    """Tokens of each row: a quarter of its characters and two, at most the model's limit; what is generated counts."""
    lengths = [min(max_tokens, 2 + len(text) // TOKEN_CHARACTERS) for text in texts]
    if isinstance(job.inputs, GenerateInputs):
        lengths[0] += _to_generate(job.inputs)
    return lengths


def answer(job: Job, record: ModelRecord, texts: Sequence[str], lengths: Sequence[int]) -> Outputs:
    """The outputs of ``job``."""
    ground = f"{record.digest}\0{job.adapter_digest or ''}\0"
    tokens = sum(lengths)
    match job.inputs:
        case RerankInputs():
            return RerankOutputs(scores=[_share(ground + text) for text in texts], tokens=tokens)
        case ClassifyInputs() if job.task is Task.TOKEN_CLASSIFY:
            entities = [_entities(ground, text) for text in texts]
            return TokenClassifyOutputs(entities=entities, labels=LABELS, tokens=tokens)
        case ClassifyInputs():
            shares = [_share(ground + text) for text in texts]
            return ClassifyOutputs(labels=LABELS, scores=[[share, 1.0 - share] for share in shares], tokens=tokens)
        case GenerateInputs() as inputs:
            words = _words(ground + texts[0], _to_generate(inputs))
            prompt_tokens = tokens - len(words)
            return GenerateOutputs(" ".join(words), [], "length", prompt_tokens, len(words))
        case _:
            dimension = record.dimension or DEFAULT_DIMENSION
            vectors = b"".join(_vector(ground + text, dimension) for text in texts)
            return EmbeddingOutputs(dimension=dimension, vectors=vectors, tokens=tokens)


def _to_generate(inputs: GenerateInputs) -> int:
    return inputs.sampling.max_tokens or DEFAULT_MAX_TOKENS


def _vector(seed: str, dimension: int) -> bytes:
    values = [_VALUES[byte] for byte in hashlib.shake_256(seed.encode()).digest(dimension)]
    norm = math.sqrt(sum(value * value for value in values)) or 1.0
    return array("f", [value / norm for value in values]).tobytes()


def _share(seed: str) -> float:
    return int.from_bytes(hashlib.blake2b(seed.encode(), digest_size=4).digest(), "big") / 2**32


def _words(seed: str, count: int) -> list[str]:
    return [WORDS[byte % len(WORDS)] for byte in hashlib.shake_256(seed.encode()).digest(count)]


def _entities(ground: str, text: str) -> list[Entity]:
    found, start = [], 0
    for word in text.split():
        start = text.index(word, start)
        if word[:1].isupper():
            label = LABELS[int(_share(ground + word) * len(LABELS))]
            found.append(Entity(label=label, score=_share(word), start=start, end=start + len(word)))
        start += len(word)
    return found
