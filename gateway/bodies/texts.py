"""Texts of a body: counted, measured, and guessed in tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wire.errors import Code, ShoalError

CHARS_PER_TOKEN = 4
MIN_TOKENS = 2
# Tokenizing reads all of a text, also what is cut off: its bytes cost something beyond the model's limit.
BYTES_PER_CUT_TOKEN = 64


@dataclass(frozen=True, slots=True)
class TextBounds:
    """How many texts a request may have, and how many bytes of UTF-8 each of them."""

    max_inputs: int
    max_text_bytes: int


def estimate_tokens(texts: Iterable[str], max_tokens: int) -> int:
    """Guess of the tokens of all ``texts``: bytes / 4 plus the two frame tokens, at most ``max_tokens`` for each, but
    never less than bytes / 64 for the work of reading it."""
    total = 0
    for text in texts:
        size = size_bytes(text)
        total += max(min(max_tokens, size // CHARS_PER_TOKEN + MIN_TOKENS), size // BYTES_PER_CUT_TOKEN)
    return total


def size_bytes(text: str) -> int:
    """Bytes of ``text`` as UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def checked_texts(given: str | list[str | int | list[int]], bounds: TextBounds, *, field: str) -> list[str]:
    """The texts in ``given``, one or many. Raises ``ShoalError`` naming the one that cannot be used."""
    if isinstance(given, str):
        check_text(given, bounds, field)
        return [given]
    if not given:
        raise empty(f"`{field}` is an empty list.", field)
    check_count(len(given), bounds, field)
    texts: list[str] = []
    for index, item in enumerate(given):
        if not isinstance(item, str):
            raise ShoalError(
                Code.UNSUPPORTED_PARAMETER,
                f"`{field}` holds token numbers, which fit only the tokenizer that made them.",
                param=field,
                hint="Send the texts themselves.",
            )
        check_text(item, bounds, f"{field}[{index}]")
        texts.append(item)
    return texts


def check_count(count: int, bounds: TextBounds, field: str) -> None:
    """Raise for more texts than a request may have."""
    if count > bounds.max_inputs:
        raise ShoalError(
            Code.TOO_MANY_INPUTS,
            f"`{field}` has {count} texts; the limit is {bounds.max_inputs} a request.",
            param=field,
            hint="Split them over several requests.",
        )


def check_text(text: str, bounds: TextBounds, name: str) -> None:
    """Raise for a text that is empty or too long."""
    if not text:
        raise empty(f"`{name}` is an empty string.", name)
    limit = bounds.max_text_bytes
    # A character has at most four bytes: most texts need no measuring.
    if 4 * len(text) > limit and (size := size_bytes(text)) > limit:
        raise too_long(name, size, limit)


def too_long(name: str, size: int, limit_bytes: int) -> ShoalError:
    """A text of ``size`` bytes is above the limit."""
    return ShoalError(
        Code.INPUT_TOO_LONG,
        f"`{name}` has {size} bytes; the limit is {limit_bytes} a text.",
        param=name,
        hint="Split it into parts and send each.",
    )


def empty(message: str, param: str) -> ShoalError:
    """There is nothing to work on."""
    return ShoalError(Code.INPUT_EMPTY, message, param=param, hint="Leave empty texts out.")
