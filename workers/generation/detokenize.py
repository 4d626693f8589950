"""Token ids to text as they come, without ever sending half a character."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_REPLACEMENT = "\ufffd"
_MOST_HELD = 16
"""A character has at most four bytes; tokens beyond that which end in no character are bytes of no text."""
_CONTEXT_TOKENS = 6
"""Tokens of the prompt that the first piece is decoded after: many decoders drop a space at the start of a text."""


class Detokenizer:
    """Decodes a window of the last tokens twice, with and without the new ones; the difference is the new text."""

    def __init__(self, decode: Callable[[list[int]], str], prompt: Sequence[int]) -> None:
        self._decode = decode
        self._ids = list(prompt[-_CONTEXT_TOKENS:])
        self._read = len(self._ids)
        self._known = decode(self._ids) if self._ids else ""

    def push(self, token: int) -> str:
        """The text that is certain now."""
        self._ids.append(token)
        text = self._decode(self._ids)
        if text.endswith(_REPLACEMENT) and len(self._ids) - self._read < _MOST_HELD:
            return ""
        return self._take(text)

    def flush(self) -> str:
        """What is left when no further token comes; bytes of no character become U+FFFD."""
        return self._take(self._decode(self._ids)) if len(self._ids) > self._read else ""

    def _take(self, text: str) -> str:
        piece = text[len(self._known) :]
        self._ids = self._ids[self._read :]
        self._read = len(self._ids)
        self._known = self._decode(self._ids)
        return piece
