"""The body of ``POST /v1/rerank``, as Cohere and Jina have it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from gateway.bodies.reading import Body, BodyReader
from gateway.bodies.texts import TextBounds, check_count, check_text, empty
from wire.errors import Code, ShoalError


class Document(msgspec.Struct, frozen=True):
    """A document as an object; other fields than ``text`` are not ranked and not given back."""

    text: str


class RerankBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields that both services know."""

    query: str
    documents: list[str | Document]
    top_n: int | None = None
    return_documents: bool | None = None
    truncate: bool | None = None


@dataclass(frozen=True, slots=True)
class RerankRequest:
    """An accepted body."""

    model: str
    query: str
    documents: list[str]
    top_n: int
    return_documents: bool
    truncate: bool
    user: str | None


_reader = BodyReader(
    RerankBody,
    hint='Send an object like {"model": "team/adapter", "query": "text", "documents": ["text", {"text": "text"}]}.',
)


def parse_rerank(body: bytes, bounds: TextBounds) -> RerankRequest:
    """The request in ``body``. Raises ``ShoalError`` with a 400 code and ``param``."""
    raw = _reader.read(body)
    check_text(raw.query, bounds, "query")
    if not raw.documents:
        raise empty("`documents` is an empty list.", "documents")
    check_count(len(raw.documents), bounds, "documents")
    documents: list[str] = []
    for index, item in enumerate(raw.documents):
        text, name = (item, f"documents[{index}]") if isinstance(item, str) else (item.text, f"documents[{index}].text")
        check_text(text, bounds, name)
        documents.append(text)
    top_n = len(documents) if raw.top_n is None else raw.top_n
    if top_n < 1:
        raise ShoalError(Code.INVALID_REQUEST, f"`top_n` is {top_n}; it must be at least 1.", param="top_n")
    return RerankRequest(
        model=raw.model,
        query=raw.query,
        documents=documents,
        top_n=top_n,
        return_documents=raw.return_documents is True,
        truncate=raw.truncate is not False,
        user=raw.user or None,
    )
