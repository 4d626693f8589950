"""The body of ``POST /v1/embeddings``: decoded into a typed struct, then refused or accepted. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Literal

import msgspec

from wire.errors import Code, ShoalError

CHARS_PER_TOKEN = 4
MIN_TOKENS = 2
# Tokenizing reads all of a text, also what is cut off: its bytes cost something beyond the model's limit.
BYTES_PER_CUT_TOKEN = 64

_MODEL_CHARS = 512
_FIELDS = (b'"model"', b'"input"', b'"encoding_format"', b'"dimensions"', b'"truncate"', b'"user"')
_PATH = re.compile(r" - at `\$\.?(.*)`\Z")
_MISSING = re.compile(r"missing required field `(\w+)`")


class EmbeddingsBody(msgspec.Struct, frozen=True):
    """The fields that are read; others are ignored, as OpenAI does."""

    model: str
    input: str | list[str | int | list[int]]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    truncate: bool | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class EmbeddingsRequest:
    """An accepted body."""

    model: str
    texts: list[str]
    base64: bool
    truncate: bool
    user: str | None


_decoder = msgspec.json.Decoder(EmbeddingsBody)


def parse_embeddings(body: bytes, *, max_inputs: int, max_text_bytes: int) -> EmbeddingsRequest:
    """The request in ``body``. Raises ``ShoalError`` with a 400 code and ``param``."""
    raw = _decode(body)
    if raw.dimensions is not None:
        raise ShoalError(
            Code.UNSUPPORTED_PARAMETER,
            "`dimensions` is not supported: vectors have the model's own size.",
            param="dimensions",
            hint="Leave it out, or cut and normalise the vectors yourself if the model was trained for it.",
        )
    if not raw.model or len(raw.model) > _MODEL_CHARS:
        raise ShoalError(
            Code.INVALID_REQUEST, f"`model` has {len(raw.model)} characters; it must have 1 to 512.", param="model"
        )
    return EmbeddingsRequest(
        model=raw.model,
        texts=_texts(raw.input, max_inputs, max_text_bytes),
        base64=raw.encoding_format == "base64",
        truncate=raw.truncate is not False,
        user=raw.user or None,
    )


def estimate_tokens(texts: list[str], max_tokens: int) -> int:
    """Guess of the tokens of all ``texts``: bytes / 4 plus the two frame tokens, at most ``max_tokens`` for each, but
    never less than bytes / 64 for the work of reading it."""
    total = 0
    for text in texts:
        size = _size_bytes(text)
        total += max(min(max_tokens, size // CHARS_PER_TOKEN + MIN_TOKENS), size // BYTES_PER_CUT_TOKEN)
    return total


def _decode(body: bytes) -> EmbeddingsBody:
    try:
        if not body.isascii():
            body.decode()
        raw = _decoder.decode(body)
        _refuse_duplicates(body)
    except msgspec.ValidationError as error:
        raise _wrong_type(str(error)) from error
    except UnicodeDecodeError as error:
        raise ShoalError(
            Code.INVALID_JSON,
            f"The body is not UTF-8: byte {error.start} cannot be read.",
            hint="Encode the JSON as UTF-8.",
        ) from error
    except RecursionError as error:
        raise ShoalError(Code.INVALID_JSON, "The body is nested too deeply.") from error
    except msgspec.DecodeError as error:
        what = "is empty" if not body.strip() else f"is not JSON: {error}"
        raise ShoalError(
            Code.INVALID_JSON,
            f"The body {what}.",
            hint='Send an object like {"model": "team/adapter", "input": "text"}.',
        ) from error
    return raw


def _refuse_duplicates(body: bytes) -> None:
    """Raise for a field given twice: readers differ in which one they take.

    The decoder takes the last silently. Counting names is cheap and finds every suspect; only those are read again.
    """
    if all(body.count(name) < 2 for name in _FIELDS):
        return

    def check(pairs: list[tuple[str, object]]) -> None:
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ShoalError(Code.INVALID_JSON, f"The field {name[:100]!r} is given twice.", param=name[:100])
            seen.add(name)

    # Numbers are not looked at, and Python refuses to convert very long ones.
    json.loads(body, object_pairs_hook=check, parse_int=len)


def _wrong_type(text: str) -> ShoalError:
    """An error of the decoder as ours; its path (``$.input[3]``) becomes ``param``."""
    path = _PATH.search(text)
    missing = _MISSING.search(text)
    param = path.group(1) if path else missing.group(1) if missing else None
    what = _PATH.sub("", text)
    message = f"{what} in `{param}`." if param else f"{what}."
    if missing:
        message = f"`{missing.group(1)}` is missing."
    return ShoalError(
        Code.INVALID_REQUEST,
        message,
        param=param,
        hint="`input` is a string or a list of strings, `encoding_format` is float or base64.",
    )


def _texts(given: str | list[str | int | list[int]], max_inputs: int, max_text_bytes: int) -> list[str]:
    items = [given] if isinstance(given, str) else given
    if not items:
        raise _empty("`input` is an empty list.", "input")
    if len(items) > max_inputs:
        raise ShoalError(
            Code.TOO_MANY_INPUTS,
            f"`input` has {len(items)} texts; the limit is {max_inputs} a request.",
            param="input",
            hint="Split them over several requests.",
        )
    texts: list[str] = []
    for index, item in enumerate(items):
        if not isinstance(item, str):
            raise ShoalError(
                Code.UNSUPPORTED_PARAMETER,
                "`input` holds token numbers, which fit only the tokenizer that made them.",
                param="input",
                hint="Send the texts themselves.",
            )
        name = "input" if isinstance(given, str) else f"input[{index}]"
        if not item:
            raise _empty(f"`{name}` is an empty string.", name)
        if 4 * len(item) > max_text_bytes and (size := _size_bytes(item)) > max_text_bytes:
            raise ShoalError(
                Code.INPUT_TOO_LONG,
                f"`{name}` has {size} bytes; the limit is {max_text_bytes} a text.",
                param=name,
                hint="Split it into parts and embed each.",
            )
        texts.append(item)
    return texts


def _size_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _empty(message: str, param: str) -> ShoalError:
    return ShoalError(Code.INPUT_EMPTY, message, param=param, hint="Leave empty texts out.")
