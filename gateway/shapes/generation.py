"""JSON of chat and completion answers, whole and in chunks, as OpenAI has them."""

from __future__ import annotations

from typing import Protocol

import msgspec

from gateway.answers import encoder
from gateway.shapes.logprobs import ChatLogprobs, CompletionLogprobs, chat_logprobs, completion_logprobs
from wire.jobs import GenerateOutputs


class CachedTokens(msgspec.Struct, frozen=True):
    """Tokens of the prompt that another request with the same beginning had computed."""

    cached_tokens: int


class TextUsage(msgspec.Struct, frozen=True):
    """Tokens read and written."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a chunk adds to the assistant's message."""

    content: str
    role: str | None = None


class AssistantMessage(msgspec.Struct, frozen=True):
    """The whole message."""

    content: str
    role: str = "assistant"
    refusal: None = None


class ChatChoice(msgspec.Struct, frozen=True):
    """The one choice of a whole chat answer."""

    message: AssistantMessage
    finish_reason: str | None
    logprobs: ChatLogprobs | None
    index: int = 0


class ChatChunkChoice(msgspec.Struct, frozen=True):
    """The one choice of a chunk."""

    delta: Delta
    finish_reason: str | None
    logprobs: ChatLogprobs | None
    index: int = 0


class TextChoice(msgspec.Struct, frozen=True):
    """The one choice of a completion or of a chunk of it."""

    text: str
    finish_reason: str | None
    logprobs: CompletionLogprobs | None
    index: int = 0


class GenerationAnswer(msgspec.Struct, frozen=True):
    """An answer or a chunk of it; a chunk has no ``usage`` but the last one, if it was asked for."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice] | list[ChatChunkChoice] | list[TextChoice]
    usage: TextUsage | None


class GenerationShape(Protocol):
    """Bodies of one answer."""

    def whole(self, outputs: GenerateOutputs) -> bytes:
        """The body of an answer that does not stream."""

    def chunk(self, outputs: GenerateOutputs) -> bytes:
        """The next chunk."""

    def usage_chunk(self, outputs: GenerateOutputs) -> bytes:
        """The chunk after the last, with the counts of the last part."""


class Head(msgspec.Struct, frozen=True):
    """What all bodies of one answer share."""

    id: str
    created: int
    model: str
    fingerprint: str
    logprobs: bool

    def body(
        self,
        kind: str,
        choices: list[ChatChoice] | list[ChatChunkChoice] | list[TextChoice],
        usage: TextUsage | None,
    ) -> bytes:
        """JSON of one answer or chunk."""
        answer = GenerationAnswer(self.id, kind, self.created, self.model, self.fingerprint, choices, usage)
        return encoder.encode(answer)


def usage_of(outputs: GenerateOutputs) -> TextUsage:
    """Counts of a whole job."""
    return TextUsage(
        outputs.prompt_tokens,
        outputs.completion_tokens,
        outputs.prompt_tokens + outputs.completion_tokens,
        CachedTokens(outputs.cached_tokens),
    )


class ChatShape:
    """Chat answers."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._begun = False

    def whole(self, outputs: GenerateOutputs) -> bytes:
        choice = ChatChoice(AssistantMessage(outputs.text), outputs.finish_reason, self._logprobs(outputs))
        return self._head.body("chat.completion", [choice], usage_of(outputs))

    def chunk(self, outputs: GenerateOutputs) -> bytes:
        delta = Delta(outputs.text, None if self._begun else "assistant")
        self._begun = True
        choice = ChatChunkChoice(delta, outputs.finish_reason, self._logprobs(outputs))
        return self._head.body("chat.completion.chunk", [choice], None)

    def usage_chunk(self, outputs: GenerateOutputs) -> bytes:
        empty: list[ChatChunkChoice] = []
        return self._head.body("chat.completion.chunk", empty, usage_of(outputs))

    def _logprobs(self, outputs: GenerateOutputs) -> ChatLogprobs | None:
        return chat_logprobs(outputs.logprobs) if self._head.logprobs else None


class CompletionShape:
    """Completions; a chunk looks like a whole answer."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._offset = 0

    def whole(self, outputs: GenerateOutputs) -> bytes:
        return self._head.body("text_completion", [self._choice(outputs)], usage_of(outputs))

    def chunk(self, outputs: GenerateOutputs) -> bytes:
        return self._head.body("text_completion", [self._choice(outputs)], None)

    def usage_chunk(self, outputs: GenerateOutputs) -> bytes:
        empty: list[TextChoice] = []
        return self._head.body("text_completion", empty, usage_of(outputs))

    def _choice(self, outputs: GenerateOutputs) -> TextChoice:
        logprobs = completion_logprobs(outputs.logprobs, self._offset) if self._head.logprobs else None
        self._offset += len(outputs.text)
        return TextChoice(outputs.text, outputs.finish_reason, logprobs)
