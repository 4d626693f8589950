"""What chat and completions bodies share: how tokens are chosen, and whether the answer streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.bodies.reading import Body, refuse_unless_neutral
from wire.errors import Code, ShoalError
from wire.jobs import GenerateInputs, Sampling

MAX_TOKENS = 1_000_000
MAX_STOPS = 16
STOP_CHARS = 256
MAX_TOP_LOGPROBS = 20
MAX_SEED = 2**63 - 1
# Answers mostly end by themselves; a request without a bound must not count as a whole context.
UNBOUNDED_TOKENS = 256


class StreamOptions(msgspec.Struct, frozen=True):
    """OpenAI's ``stream_options``."""

    include_usage: bool | None = None


class GenerateBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of both paths. Those of ``NEUTRAL`` are taken only where they change nothing."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Any = None
    best_of: Any = None
    logit_bias: Any = None
    min_p: Any = None
    repetition_penalty: Any = None
    length_penalty: Any = None
    min_tokens: Any = None


NEUTRAL: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "logit_bias": ({},),
    "min_p": (0, 0.0),
    "repetition_penalty": (1, 1.0),
    "length_penalty": (1, 1.0),
    "min_tokens": (0,),
}


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """An accepted body. ``texts`` are what the model reads, for the token estimate."""

    model: str
    inputs: GenerateInputs
    texts: list[str]
    include_usage: bool
    user: str | None

    @property
    def token_bound(self) -> int:
        """Tokens that the answer is counted with before it exists."""
        return self.inputs.sampling.max_tokens or UNBOUNDED_TOKENS


def sampling_of(raw: GenerateBody, *, max_tokens: int | None, logprobs: int | None) -> Sampling:
    """The sampling that ``raw`` asks for. Raises ``ShoalError`` naming the parameter that is out of its range."""
    refuse_unless_neutral(raw, NEUTRAL)
    if raw.stream_options is not None and not raw.stream:
        raise ShoalError(Code.INVALID_REQUEST, "`stream_options` needs `stream` to be true.", param="stream_options")
    within("max_tokens", max_tokens, 1, MAX_TOKENS)
    within("temperature", raw.temperature, 0, 2)
    within("top_p", raw.top_p, 0, 1)
    within("top_k", raw.top_k, -1, MAX_TOKENS)
    within("seed", raw.seed, -MAX_SEED, MAX_SEED)
    within("presence_penalty", raw.presence_penalty, -2, 2)
    within("frequency_penalty", raw.frequency_penalty, -2, 2)
    return Sampling(
        max_tokens=max_tokens,
        temperature=1.0 if raw.temperature is None else raw.temperature,
        top_p=1.0 if raw.top_p is None else raw.top_p,
        # Some servers call "all tokens" -1.
        top_k=max(0, raw.top_k or 0),
        seed=raw.seed,
        stop=_stops(raw.stop),
        logprobs=logprobs,
        presence_penalty=raw.presence_penalty or 0.0,
        frequency_penalty=raw.frequency_penalty or 0.0,
        ignore_eos=raw.ignore_eos is True,
    )


def within(name: str, value: float | None, least: int, most: int) -> None:
    """Raise for a number out of its range."""
    if value is not None and not least <= value <= most:
        raise ShoalError(
            Code.INVALID_REQUEST, f"`{name}` is {value:.20g}; it must be from {least} to {most}.", param=name
        )


def _stops(given: str | list[str] | None) -> list[str]:
    stops = [] if given is None else [given] if isinstance(given, str) else given
    if len(stops) > MAX_STOPS:
        raise ShoalError(
            Code.INVALID_REQUEST, f"`stop` has {len(stops)} texts; the limit is {MAX_STOPS}.", param="stop"
        )
    for stop in stops:
        if not 1 <= len(stop) <= STOP_CHARS:
            raise ShoalError(
                Code.INVALID_REQUEST,
                f"A text of `stop` has {len(stop)} characters; it must have 1 to {STOP_CHARS}.",
                param="stop",
            )
    return stops
