"""The body of ``POST /v1/completions``."""

from __future__ import annotations

from typing import Any

from gateway.bodies.reading import BodyReader, refuse_unless_neutral
from gateway.bodies.sampling import MAX_TOP_LOGPROBS, GenerateBody, GenerateRequest, sampling_of, within
from gateway.bodies.texts import TextBounds, checked_texts
from wire.errors import Code, ShoalError
from wire.jobs import GenerateInputs


class CompletionsBody(GenerateBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """OpenAI's fields, and ours."""

    prompt: str | list[str | int | list[int]]
    logprobs: int | None = None
    echo: Any = None
    suffix: Any = None


_NEUTRAL: dict[str, tuple[object, ...]] = {"echo": (False,), "suffix": ("",)}

_reader = BodyReader(
    CompletionsBody, hint='Send an object like {"model": "team/adapter", "prompt": "text", "max_tokens": 32}.'
)


def parse_completions(body: bytes, bounds: TextBounds) -> GenerateRequest:
    """The request in ``body``. Raises ``ShoalError`` with a 400 code and ``param``."""
    raw = _reader.read(body)
    refuse_unless_neutral(raw, _NEUTRAL)
    prompts = checked_texts(raw.prompt, bounds, field="prompt")
    if len(prompts) > 1:
        raise ShoalError(
            Code.UNSUPPORTED_PARAMETER,
            f"`prompt` has {len(prompts)} texts; a request continues one.",
            param="prompt",
            hint="Send a request for each; they run in one batch all the same.",
        )
    within("logprobs", raw.logprobs, 0, MAX_TOP_LOGPROBS)
    # OpenAI's default of this older path is 16 tokens.
    max_tokens = 16 if raw.max_tokens is None else raw.max_tokens
    sampling = sampling_of(raw, max_tokens=max_tokens, logprobs=raw.logprobs)
    return GenerateRequest(
        model=raw.model,
        inputs=GenerateInputs(prompt=prompts[0], sampling=sampling, stream=raw.stream is True),
        texts=prompts,
        include_usage=raw.stream_options is not None and raw.stream_options.include_usage is True,
        user=raw.user or None,
    )
