"""The body of ``POST /v1/classify``."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.bodies.reading import Body, BodyReader
from gateway.bodies.texts import TextBounds, checked_texts


class ClassifyBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Texts to label."""

    input: str | list[str | int | list[int]]
    truncate: bool | None = None


@dataclass(frozen=True, slots=True)
class ClassifyRequest:
    """An accepted body."""

    model: str
    texts: list[str]
    truncate: bool
    user: str | None


_reader = BodyReader(
    ClassifyBody,
    hint='Send an object like {"model": "team/adapter", "input": "text"}; `input` is a string or a list of strings.',
)


def parse_classify(body: bytes, bounds: TextBounds) -> ClassifyRequest:
    """The request in ``body``. Raises ``ShoalError`` with a 400 code and ``param``."""
    raw = _reader.read(body)
    return ClassifyRequest(
        model=raw.model,
        texts=checked_texts(raw.input, bounds, field="input"),
        truncate=raw.truncate is not False,
        user=raw.user or None,
    )
