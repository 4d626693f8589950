"""``POST /v1/chat/completions`` and ``/v1/completions``: generated text, whole or streamed."""

from __future__ import annotations

import time
from abc import abstractmethod
from contextlib import aclosing

from gateway.bodies.chat import parse_chat
from gateway.bodies.completions import parse_completions
from gateway.bodies.sampling import GenerateRequest
from gateway.bodies.texts import TextBounds, estimate_tokens
from gateway.dispatch import Order, Work, run_works, stream_work
from gateway.endpoints.endpoint import Exchange
from gateway.endpoints.inference import Inference, job_headers
from gateway.events import end_events, end_with_error, send_event, start_events
from gateway.plane import Gateway, Plane
from gateway.routing import Target
from gateway.shapes.generation import ChatShape, CompletionShape, GenerationShape, Head
from wire.errors import ShoalError
from wire.jobs import GenerateOutputs, Task

FINGERPRINT_CHARS = 12


class Generation(Inference[GenerateRequest]):
    """Text that continues a prompt. Subclasses say how bodies look."""

    tasks = (Task.GENERATE,)
    id_prefix = b""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(gateway)
        self.default_timeout_ms = gateway.settings.generate_timeout_ms

    @abstractmethod
    def shape(self, head: Head) -> GenerationShape:
        """How this path's answers look."""

    async def serve(self, exchange: Exchange, plane: Plane, order: Order, request: GenerateRequest) -> None:
        shape = self.shape(self._head(exchange, request, order.target))
        work = _work(request, order.target.model.max_tokens)
        if request.inputs.stream:
            await self._stream(exchange, plane, order, request, work, shape)
            return
        done = await run_works(plane, self.gateway.metrics, order, [work])
        outputs = done.outputs[0]
        tokens = outputs.prompt_tokens + outputs.completion_tokens
        await self.answer(exchange, done, shape.whole(outputs), inputs=1, tokens=tokens)

    async def refuse_late(self, exchange: Exchange, error: ShoalError) -> None:
        await end_with_error(exchange.send, error)

    async def _stream(
        self,
        exchange: Exchange,
        plane: Plane,
        order: Order,
        request: GenerateRequest,
        work: Work[GenerateOutputs],
        shape: GenerationShape,
    ) -> None:
        send = exchange.send
        idle_s = self.gateway.settings.stream_idle_s
        queue_ms = 0.0
        outputs: GenerateOutputs | None = None
        async with aclosing(stream_work(plane, self.gateway.metrics, order, work, idle_s=idle_s)) as parts:
            async for result, outputs in parts:
                if not exchange.started:
                    # The head waits for the first part: until then a failure still has its own status.
                    exchange.started = True
                    queue_ms = result.queue_ms
                    await start_events(send, [*exchange.headers, *job_headers(queue_ms, result.batch_rows)])
                await send_event(send, shape.chunk(outputs))
        if outputs is not None:
            if request.include_usage:
                await send_event(send, shape.usage_chunk(outputs))
            exchange.tokens = outputs.prompt_tokens + outputs.completion_tokens
        await end_events(send)
        self.observe(queue_ms, inputs=1, tokens=exchange.tokens)

    def _head(self, exchange: Exchange, request: GenerateRequest, target: Target) -> Head:
        return Head(
            id=(self.id_prefix + exchange.request_id).decode(),
            created=int(time.time()),
            model=request.model,
            fingerprint=f"shoal_{target.digest[:FINGERPRINT_CHARS]}",
            logprobs=request.inputs.sampling.logprobs is not None,
        )


class Chat(Generation):
    """The assistant's next message."""

    name = "chat"
    id_prefix = b"chatcmpl-"

    def parse(self, body: bytes, bounds: TextBounds) -> GenerateRequest:
        return parse_chat(body, bounds)

    def shape(self, head: Head) -> GenerationShape:
        return ChatShape(head)


class Completions(Generation):
    """The continuation of a text."""

    name = "completions"
    id_prefix = b"cmpl-"

    def parse(self, body: bytes, bounds: TextBounds) -> GenerateRequest:
        return parse_completions(body, bounds)

    def shape(self, head: Head) -> GenerationShape:
        return CompletionShape(head)


def _work(request: GenerateRequest, max_tokens: int) -> Work[GenerateOutputs]:
    # What is read and what may be written; together they end at the model's limit.
    read = estimate_tokens(["".join(request.texts)], max_tokens)
    written = min(request.token_bound, max(1, max_tokens - read))
    stream = request.inputs.stream
    return Work(
        inputs=request.inputs,
        token_estimate=read + written,
        chars=sum(map(len, request.texts)),
        texts=len(request.texts),
        outputs=GenerateOutputs,
        fits=lambda outputs: stream or outputs.finish_reason is not None,
    )
