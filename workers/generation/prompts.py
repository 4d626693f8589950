"""Chats and prompts to token ids, and tokens back to text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wire.errors import Code, ShoalError
from wire.jobs import GenerateInputs, Message, Sampling

_CHARACTERS_PER_TOKEN = 256
"""A prompt with more characters for each token of the limit is not even tokenized."""


class Prompts:
    """A model's tokenizer with its chat template; safe to use beside the device's thread."""

    def __init__(self, tokenizer: Any, *, name: str, max_tokens: int) -> None:
        self._templates = tokenizer
        # transformers' own call sets padding and truncation each time, which two threads must not do at once
        self._tokenizer = tokenizer.backend_tokenizer
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._name = name
        self._max_tokens = max_tokens

    def encode(self, inputs: GenerateInputs) -> list[int]:
        """Token ids of the prompt, with room for at least one more.

        Raises ``ShoalError``: INPUT_EMPTY; INPUT_TOO_LONG naming tokens and limit; INVALID_REQUEST when there is no
        chat template, or it refuses the messages.
        """
        _check_sampling(inputs.sampling)
        text = self._render(inputs.messages) if inputs.messages else inputs.prompt
        if len(text) > self._max_tokens * _CHARACTERS_PER_TOKEN:
            raise self._too_long(f"{len(text)} characters")
        # the batch call leaves Python's lock to the device's thread; a template writes special tokens itself
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=not inputs.messages)
        ids = list(encoding.ids)
        if not ids:
            raise ShoalError(Code.INPUT_EMPTY, "The prompt is empty.", param="prompt")
        if len(ids) >= self._max_tokens:
            raise self._too_long(f"{len(ids)} tokens")
        return ids

    def decode(self, ids: list[int]) -> str:
        """Text without special tokens."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))

    def token_name(self, token: int) -> str:
        """One token as it is."""
        return str(self._tokenizer.decode([token], skip_special_tokens=False))

    def _render(self, messages: Sequence[Message]) -> str:
        if not self._templates.chat_template:
            raise ShoalError(
                Code.INVALID_REQUEST,
                f"{self._name} has no chat template.",
                param="messages",
                hint="Send the whole prompt to /v1/completions, or serve a model whose tokenizer has a chat template.",
            )
        turns = [
            {"role": turn.role, "content": turn.content} | ({"name": turn.name} if turn.name else {})
            for turn in messages
        ]
        try:
            return str(self._templates.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
        except Exception as error:  # a template is the model author's program: it may raise anything
            raise ShoalError(
                Code.INVALID_REQUEST,
                f"The chat template of {self._name} refuses these messages: {error}.",
                param="messages",
                hint="Check the roles and their order; many templates want user and assistant in turns.",
            ) from error

    def _too_long(self, size: str) -> ShoalError:
        return ShoalError(
            Code.INPUT_TOO_LONG,
            f"The prompt has {size}, the limit of {self._name} is {self._max_tokens} tokens with at least 1 to make.",
            param="messages",
            hint="Shorten the prompt.",
        )


def _check_sampling(sampling: Sampling) -> None:
    if sampling.max_tokens is not None and sampling.max_tokens < 1:
        raise ShoalError(
            Code.INVALID_REQUEST, f"max_tokens is {sampling.max_tokens}, the least is 1.", param="max_tokens"
        )
