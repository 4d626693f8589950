"""What ``shoal try`` shows: the same texts through an adapter and through its base."""

from __future__ import annotations

import math

import msgspec

from client.api import Shoal
from client.errors import ClientError
from client.models import Embeddings
from wire.names import parse_address


class Answer(msgspec.Struct, frozen=True):
    """One model's answer: cosine of the first text to each other one, and the figures of the request."""

    version: str
    digest: str
    similarities: list[float]
    queue_ms: float
    elapsed_ms: float
    batch_size: int


class Comparison(msgspec.Struct, frozen=True):
    """Adapter and base over the same texts. ``agreement`` is the mean cosine between their vectors of the same text."""

    texts: list[str]
    model: Answer
    base: Answer | None
    agreement: float | None


def cosine(a: list[float], b: list[float]) -> float:
    """Cosine similarity of two vectors of one length; 0 when one of them is zero."""
    norm = math.hypot(*a) * math.hypot(*b)
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / norm if norm else 0.0


def compare(shoal: Shoal, model: str, texts: list[str], *, base: str | None = None) -> Comparison:
    """Embeds ``texts`` with ``model`` and, where it is an adapter, with its base. Raises ``ClientError``."""
    own = shoal.embed(model, texts)
    base = base or _base_of(shoal, model)
    if base is None:
        return Comparison(texts, _answer(own), None, None)
    other = shoal.embed(base, texts)
    pairs = list(zip(own.vectors, other.vectors, strict=True))
    agreement = sum(cosine(a, b) for a, b in pairs) / len(pairs)
    return Comparison(texts, _answer(own), _answer(other), agreement)


def _base_of(shoal: Shoal, model: str) -> str | None:
    address = parse_address(model)
    known = {adapter.name: adapter for adapter in shoal.adapters()}
    if address is None or str(address.name) not in known:
        return None
    base = known[str(address.name)].base_model
    if base is None:
        raise ClientError(f"{address.name} has no base model yet: no version of it is ready.")
    return base


def _answer(embeddings: Embeddings) -> Answer:
    first, *others = embeddings.vectors
    return Answer(
        version=embeddings.version,
        digest=embeddings.digest,
        similarities=[cosine(first, other) for other in others],
        queue_ms=embeddings.queue_ms,
        elapsed_ms=embeddings.elapsed_ms,
        batch_size=embeddings.batch_size,
    )
