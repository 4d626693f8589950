"""``POST /v1/classify``: a label and its score for each text, or the entities in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gateway.bodies.classify import ClassifyRequest, parse_classify
from gateway.bodies.texts import TextBounds, estimate_tokens
from gateway.dispatch import Order, Work, rows_per_job, run_works
from gateway.endpoints.endpoint import Exchange
from gateway.endpoints.inference import Inference
from gateway.plane import Plane
from gateway.shapes.labels import entities_json, labels_json
from wire.jobs import ClassifyInputs, ClassifyOutputs, Task, TokenClassifyOutputs

SCORE_BYTES = 9
# No record tells how many labels a head has.
ASSUMED_LABELS = 1024
# An entity's label, numbers and framing; a text has at most as many as tokens.
ENTITY_BYTES = 64

O = TypeVar("O", ClassifyOutputs, TokenClassifyOutputs)  # noqa: E741 - outputs


class Classify(Inference[ClassifyRequest]):
    """Labels of texts, or of spans of them, as the target's head gives them."""

    name = "classify"
    tasks = (Task.CLASSIFY, Task.TOKEN_CLASSIFY)

    def parse(self, body: bytes, bounds: TextBounds) -> ClassifyRequest:
        return parse_classify(body, bounds)

    async def serve(self, exchange: Exchange, plane: Plane, order: Order, request: ClassifyRequest) -> None:
        if order.target.task is Task.CLASSIFY:
            await self._labels(exchange, plane, order, request)
        else:
            await self._entities(exchange, plane, order, request)

    async def _labels(self, exchange: Exchange, plane: Plane, order: Order, request: ClassifyRequest) -> None:
        works = _works(plane, order, request, SCORE_BYTES * ASSUMED_LABELS, ClassifyOutputs, _fits_labels)
        done = await run_works(plane, self.gateway.metrics, order, works)
        tokens = sum(outputs.tokens for outputs in done.outputs)
        truncated = sum(outputs.truncated for outputs in done.outputs)
        body = labels_json(done.outputs, tokens, model=request.model)
        await self.answer(exchange, done, body, inputs=len(request.texts), tokens=tokens, truncated=truncated)

    async def _entities(self, exchange: Exchange, plane: Plane, order: Order, request: ClassifyRequest) -> None:
        row_bytes = ENTITY_BYTES * order.target.model.max_tokens
        works = _works(plane, order, request, row_bytes, TokenClassifyOutputs, _fits_entities)
        done = await run_works(plane, self.gateway.metrics, order, works)
        tokens = sum(outputs.tokens for outputs in done.outputs)
        truncated = sum(outputs.truncated for outputs in done.outputs)
        body = entities_json(request.texts, done.outputs, tokens, model=request.model)
        await self.answer(exchange, done, body, inputs=len(request.texts), tokens=tokens, truncated=truncated)


def _works(
    plane: Plane,
    order: Order,
    request: ClassifyRequest,
    row_bytes: int,
    outputs: type[O],
    fits: Callable[[O, int], bool],
) -> list[Work[O]]:
    rows = rows_per_job(plane.connection.max_payload, row_bytes)

    def work(texts: list[str]) -> Work[O]:
        return Work(
            inputs=ClassifyInputs(texts=texts, truncate=request.truncate),
            token_estimate=estimate_tokens(texts, order.target.model.max_tokens),
            chars=sum(map(len, texts)),
            texts=len(texts),
            outputs=outputs,
            fits=lambda given: fits(given, len(texts)),
        )

    return [work(request.texts[at : at + rows]) for at in range(0, len(request.texts), rows)]


def _fits_labels(outputs: ClassifyOutputs, texts: int) -> bool:
    labels = len(outputs.labels)
    return len(outputs.scores) == texts and labels > 0 and all(len(row) == labels for row in outputs.scores)


def _fits_entities(outputs: TokenClassifyOutputs, texts: int) -> bool:
    return len(outputs.entities) == texts
