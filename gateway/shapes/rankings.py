"""JSON of a rerank answer, in the shape that Cohere and Jina share."""

from __future__ import annotations

import msgspec

from gateway.answers import encoder
from gateway.bodies.rerank import RerankRequest


class DocumentText(msgspec.Struct, frozen=True):
    """A document given back."""

    text: str


class Ranked(msgspec.Struct, frozen=True, omit_defaults=True):
    """A document's place in the request and its score; larger is more relevant."""

    index: int
    relevance_score: float
    document: DocumentText | None = None


class RankingUsage(msgspec.Struct, frozen=True):
    """Tokens that the model read."""

    prompt_tokens: int
    total_tokens: int


class Ranking(msgspec.Struct, frozen=True):
    """Documents, most relevant first."""

    id: str
    model: str
    results: list[Ranked]
    usage: RankingUsage
    object: str = "list"


def ranking_json(request: RerankRequest, scores: list[float], tokens: int, *, request_id: str) -> bytes:
    """The answer's body; equal scores stay in the request's order."""
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    results = [
        Ranked(
            index,
            scores[index],
            DocumentText(request.documents[index]) if request.return_documents else None,
        )
        for index in order[: request.top_n]
    ]
    return encoder.encode(Ranking(request_id, request.model, results, RankingUsage(tokens, tokens)))
