"""Log-probabilities in OpenAI's two shapes."""

from __future__ import annotations

import msgspec

from wire.jobs import TokenLogprob


class TopToken(msgspec.Struct, frozen=True):
    """A token that might have been chosen."""

    token: str
    logprob: float
    bytes: list[int]


class ChosenToken(msgspec.Struct, frozen=True):
    """A chosen token and the most likely ones at its place."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopToken]


class ChatLogprobs(msgspec.Struct, frozen=True):
    """Those of a chat choice."""

    content: list[ChosenToken]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """Those of a completion's choice, as columns; ``text_offset`` counts characters of the text."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


def chat_logprobs(tokens: list[TokenLogprob]) -> ChatLogprobs:
    """``tokens`` as chat answers have them."""
    return ChatLogprobs(
        [
            ChosenToken(
                each.token,
                each.logprob,
                list(each.token.encode()),
                [TopToken(token, logprob, list(token.encode())) for token, logprob in each.top],
            )
            for each in tokens
        ]
    )


def completion_logprobs(tokens: list[TokenLogprob], offset: int) -> CompletionLogprobs:
    """``tokens`` as completions have them, the first at ``offset`` of the text."""
    offsets = []
    for each in tokens:
        offsets.append(offset)
        offset += len(each.token)
    return CompletionLogprobs(
        tokens=[each.token for each in tokens],
        token_logprobs=[each.logprob for each in tokens],
        top_logprobs=[dict(each.top) for each in tokens],
        text_offset=offsets,
    )
