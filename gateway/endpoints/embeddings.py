"""``POST /v1/embeddings``: vectors for one text or many, as OpenAI gives them."""

from __future__ import annotations

from gateway.bodies.embeddings import EmbeddingsRequest, parse_embeddings
from gateway.bodies.texts import TextBounds, estimate_tokens
from gateway.dispatch import Order, Work, rows_per_job, run_works
from gateway.endpoints.endpoint import Exchange
from gateway.endpoints.inference import Inference
from gateway.plane import Plane
from gateway.routing import Target
from gateway.shapes.vectors import embeddings_json
from wire.errors import Code, ShoalError
from wire.jobs import EmbeddingInputs, EmbeddingOutputs, Task

FLOAT_BYTES = 4
# A model that does not tell its dimension is taken for a wide one.
ASSUMED_DIMENSION = 4096


class Embeddings(Inference[EmbeddingsRequest]):
    """Vectors of texts."""

    name = "embeddings"
    tasks = (Task.EMBEDDINGS,)

    def parse(self, body: bytes, bounds: TextBounds) -> EmbeddingsRequest:
        return parse_embeddings(body, bounds)

    def check(self, request: EmbeddingsRequest, target: Target) -> None:
        """``dimensions`` may say what the model has; cutting vectors is right only for models trained for it."""
        own = target.model.dimension
        if request.dimensions is not None and request.dimensions != own:
            has = own or "their own size"
            raise ShoalError(
                Code.UNSUPPORTED_PARAMETER,
                f"`dimensions` is {request.dimensions}, but vectors of {target.version} have {has}.",
                param="dimensions",
                hint="Leave it out, or cut and normalise the vectors yourself if the model was trained for it.",
            )

    async def serve(self, exchange: Exchange, plane: Plane, order: Order, request: EmbeddingsRequest) -> None:
        model = order.target.model
        rows = rows_per_job(plane.connection.max_payload, (model.dimension or ASSUMED_DIMENSION) * FLOAT_BYTES)
        texts = request.texts
        works = [_work(texts[at : at + rows], request, model.max_tokens) for at in range(0, len(texts), rows)]
        done = await run_works(plane, self.gateway.metrics, order, works)
        outputs = _joined(done.outputs)
        body = embeddings_json(outputs, model=request.model, as_base64=request.base64)
        await self.answer(exchange, done, body, inputs=len(texts), tokens=outputs.tokens, truncated=outputs.truncated)


def _work(texts: list[str], request: EmbeddingsRequest, max_tokens: int) -> Work[EmbeddingOutputs]:
    return Work(
        inputs=EmbeddingInputs(
            texts=texts,
            truncate=request.truncate,
            prompt_name=request.prompt_name,
            input_type=request.input_type,
        ),
        token_estimate=estimate_tokens(texts, max_tokens),
        chars=sum(map(len, texts)),
        texts=len(texts),
        outputs=EmbeddingOutputs,
        fits=lambda outputs: (
            outputs.dimension >= 1 and len(outputs.vectors) == len(texts) * outputs.dimension * FLOAT_BYTES
        ),
    )


def _joined(parts: list[EmbeddingOutputs]) -> EmbeddingOutputs:
    if len(parts) == 1:
        return parts[0]
    dimensions = {part.dimension for part in parts}
    if len(dimensions) != 1:
        raise ShoalError(Code.INTERNAL, f"Workers answered with different dimensions: {sorted(dimensions)}.")
    return EmbeddingOutputs(
        dimension=dimensions.pop(),
        vectors=b"".join(part.vectors for part in parts),
        tokens=sum(part.tokens for part in parts),
        truncated=sum(part.truncated for part in parts),
    )
