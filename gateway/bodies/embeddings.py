"""The body of ``POST /v1/embeddings``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gateway.bodies.reading import Body, BodyReader
from gateway.bodies.texts import TextBounds, checked_texts
from wire.errors import Code, ShoalError

PROMPT_CHARS = 64
# Names of other services, and what sentence-transformers calls a prompt for it.
_INPUT_TYPES = {
    "query": "query",
    "search_query": "query",
    "document": "document",
    "passage": "document",
    "search_document": "document",
    "classification": "classification",
    "clustering": "clustering",
}


class EmbeddingsBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """OpenAI's fields, and ours."""

    input: str | list[str | int | list[int]]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    truncate: bool | None = None
    prompt_name: str | None = None
    input_type: str | None = None


@dataclass(frozen=True, slots=True)
class EmbeddingsRequest:
    """An accepted body."""

    model: str
    texts: list[str]
    base64: bool
    truncate: bool
    user: str | None
    dimensions: int | None = None
    prompt_name: str | None = None
    input_type: str | None = None


_reader = BodyReader(
    EmbeddingsBody,
    hint='Send an object like {"model": "team/adapter", "input": "text"}; `input` is a string or a list of strings, '
    "`encoding_format` is float or base64.",
)


def parse_embeddings(body: bytes, bounds: TextBounds) -> EmbeddingsRequest:
    """The request in ``body``. Raises ``ShoalError`` with a 400 code and ``param``."""
    raw = _reader.read(body)
    return EmbeddingsRequest(
        model=raw.model,
        texts=checked_texts(raw.input, bounds, field="input"),
        base64=raw.encoding_format == "base64",
        truncate=raw.truncate is not False,
        user=raw.user or None,
        dimensions=raw.dimensions,
        prompt_name=_prompt_name(raw),
        input_type=_input_type(raw),
    )


def _prompt_name(raw: EmbeddingsBody) -> str | None:
    if raw.prompt_name is not None and not 1 <= len(raw.prompt_name) <= PROMPT_CHARS:
        raise ShoalError(
            Code.INVALID_REQUEST,
            f"`prompt_name` has {len(raw.prompt_name)} characters; it must have 1 to {PROMPT_CHARS}.",
            param="prompt_name",
        )
    return raw.prompt_name


def _input_type(raw: EmbeddingsBody) -> str | None:
    if raw.input_type is None:
        return None
    input_type = _INPUT_TYPES.get(raw.input_type)
    if input_type is None:
        raise ShoalError(
            Code.INVALID_REQUEST,
            f"`input_type` {raw.input_type[:PROMPT_CHARS]!r} is not known.",
            param="input_type",
            hint=f"There is: {', '.join(_INPUT_TYPES)}.",
        )
    return input_type
