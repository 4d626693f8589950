"""The body of ``POST /v1/chat/completions``."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.bodies.reading import BodyReader, refuse_unless_neutral
from gateway.bodies.sampling import MAX_TOP_LOGPROBS, GenerateBody, GenerateRequest, sampling_of, within
from gateway.bodies.texts import TextBounds, check_count, empty, size_bytes, too_long
from wire.errors import Code, ShoalError
from wire.jobs import GenerateInputs, Message

# OpenAI's newer name of the system's part; chat templates know the older one.
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


class Part(msgspec.Struct, frozen=True):
    """A part of a message's content."""

    type: str
    text: str = ""


class Turn(msgspec.Struct, frozen=True):
    """A message; what an assistant's message of an earlier answer has beside is ignored."""

    role: str
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: Any = None
    function_call: Any = None


class ChatBody(GenerateBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """OpenAI's fields, and ours."""

    messages: list[Turn]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: Any = None
    tool_choice: Any = None
    parallel_tool_calls: Any = None
    functions: Any = None
    function_call: Any = None
    response_format: Any = None
    modalities: Any = None
    audio: Any = None
    prediction: Any = None
    web_search_options: Any = None
    reasoning_effort: Any = None
    verbosity: Any = None
    chat_template_kwargs: Any = None


_NEUTRAL: dict[str, tuple[object, ...]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "reasoning_effort": ("none",),
    "verbosity": (),
    "chat_template_kwargs": ({},),
}

_reader = BodyReader(
    ChatBody,
    hint='Send an object like {"model": "team/adapter", "messages": [{"role": "user", "content": "text"}]}.',
)


def parse_chat(body: bytes, bounds: TextBounds) -> GenerateRequest:
    """The request in ``body``. Raises ``ShoalError`` with a 400 code and ``param``."""
    raw = _reader.read(body)
    refuse_unless_neutral(raw, _NEUTRAL)
    messages = _messages(raw.messages, bounds)
    within("top_logprobs", raw.top_logprobs, 0, MAX_TOP_LOGPROBS)
    if raw.top_logprobs and not raw.logprobs:
        raise ShoalError(Code.INVALID_REQUEST, "`top_logprobs` needs `logprobs` to be true.", param="top_logprobs")
    sampling = sampling_of(
        raw,
        max_tokens=raw.max_tokens if raw.max_completion_tokens is None else raw.max_completion_tokens,
        logprobs=(raw.top_logprobs or 0) if raw.logprobs else None,
    )
    return GenerateRequest(
        model=raw.model,
        inputs=GenerateInputs(messages=messages, sampling=sampling, stream=raw.stream is True),
        texts=[message.content for message in messages],
        include_usage=raw.stream_options is not None and raw.stream_options.include_usage is True,
        user=raw.user or None,
    )


def _messages(turns: list[Turn], bounds: TextBounds) -> list[Message]:
    if not turns:
        raise empty("`messages` is an empty list.", "messages")
    check_count(len(turns), bounds, "messages")
    messages = [_message(turn, f"messages[{index}]") for index, turn in enumerate(turns)]
    # A chat is read as one text.
    size = sum(size_bytes(message.content) for message in messages)
    if size > bounds.max_text_bytes:
        raise too_long("messages", size, bounds.max_text_bytes)
    if not any(message.content for message in messages):
        raise empty("No message of `messages` has any text.", "messages")
    return messages


def _message(turn: Turn, name: str) -> Message:
    role = ROLES.get(turn.role)
    if role is None or turn.tool_calls or turn.function_call:
        what = f"The role {turn.role[:50]!r}" if role is None else "A message with a call of a tool"
        raise ShoalError(
            Code.UNSUPPORTED_PARAMETER,
            f"{what} is not supported in `{name}`.",
            param=f"{name}.role" if role is None else f"{name}.tool_calls",
            hint=f"There is: {', '.join(ROLES)}; tools are not.",
        )
    if turn.content is None:
        raise ShoalError(Code.INVALID_REQUEST, f"`{name}` has no content.", param=f"{name}.content")
    if isinstance(turn.content, str):
        return Message(role, turn.content, turn.name)
    for index, part in enumerate(turn.content):
        if part.type != "text":
            raise ShoalError(
                Code.UNSUPPORTED_PARAMETER,
                f"A part of the type {part.type[:50]!r} is not supported in `{name}.content`: models here read text.",
                param=f"{name}.content[{index}].type",
                hint="Send parts of the type text.",
            )
    return Message(role, "\n".join(part.text for part in turn.content), turn.name)
