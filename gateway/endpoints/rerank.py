"""``POST /v1/rerank``: documents in the order of their relevance to a query."""

from __future__ import annotations

from gateway.bodies.rerank import RerankRequest, parse_rerank
from gateway.bodies.texts import TextBounds, estimate_tokens
from gateway.dispatch import Order, Work, run_works
from gateway.endpoints.endpoint import Exchange
from gateway.endpoints.inference import Inference
from gateway.plane import Plane
from gateway.shapes.rankings import ranking_json
from wire.jobs import RerankInputs, RerankOutputs, Task

# Several workers share a long list, and none of them is held up by it.
DOCUMENTS_PER_JOB = 256


class Rerank(Inference[RerankRequest]):
    """Scores of documents."""

    name = "rerank"
    tasks = (Task.RERANK,)

    def parse(self, body: bytes, bounds: TextBounds) -> RerankRequest:
        return parse_rerank(body, bounds)

    async def serve(self, exchange: Exchange, plane: Plane, order: Order, request: RerankRequest) -> None:
        documents = request.documents
        works = [
            _work(documents[at : at + DOCUMENTS_PER_JOB], request, order.target.model.max_tokens)
            for at in range(0, len(documents), DOCUMENTS_PER_JOB)
        ]
        done = await run_works(plane, self.gateway.metrics, order, works)
        scores = [score for outputs in done.outputs for score in outputs.scores]
        tokens = sum(outputs.tokens for outputs in done.outputs)
        await self.answer(
            exchange,
            done,
            ranking_json(request, scores, tokens, request_id=exchange.request_id.decode()),
            inputs=len(documents),
            tokens=tokens,
            truncated=sum(outputs.truncated for outputs in done.outputs),
        )


def _work(documents: list[str], request: RerankRequest, max_tokens: int) -> Work[RerankOutputs]:
    # A cross-encoder reads the query with each document; both together are cut at the limit.
    query_tokens = estimate_tokens([request.query], max_tokens)
    tokens = estimate_tokens(documents, max_tokens)
    return Work(
        inputs=RerankInputs(query=request.query, documents=documents, truncate=request.truncate),
        token_estimate=min(tokens + query_tokens * len(documents), max(tokens, max_tokens * len(documents))),
        chars=len(request.query) + sum(map(len, documents)),
        texts=len(documents) + 1,
        outputs=RerankOutputs,
        fits=lambda outputs: len(outputs.scores) == len(documents),
    )
