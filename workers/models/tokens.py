"""Texts to token ids, exactly as the model's own tokenizer does, bounded in time for very long texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from wire.errors import Code, ShoalError
from wire.jobs import EmbeddingInputs
from workers.models.protocol import PreparedInputs

# A text is tokenized only as far as its cut needs: in batches, which leave Python's lock to the other threads, of
# prefixes that grow while they give too few tokens. Word splitting is local, so tokens of a prefix are those of the
# text but for the last word; the margin is more than one word can yield. A word of a megabyte is one token to
# WordPiece, so growth has an end: what lies behind it counts as cut off.
_CHARACTERS_PER_TOKEN = 16
_MOST_CHARACTERS_PER_TOKEN = 256
_MARGIN_TOKENS = 256
_TEXTS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class _Content:
    """Token ids of a text, or of its beginning when not ``whole``."""

    ids: list[int]
    whole: bool


class TextTokenizer:
    """A fast tokenizer with a token limit; safe to use beside the device's thread."""

    def __init__(self, tokenizer: Tokenizer, *, max_tokens: int, pad_id: int) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self._specials = tokenizer.num_special_tokens_to_add(is_pair=False)
        self._head, self._tail = _special_ids(tokenizer, self._specials)
        self.max_tokens = max_tokens
        self.pad_id = pad_id

    def prepare(self, inputs: EmbeddingInputs) -> PreparedInputs:
        """Token ids of every text, special tokens included.

        Raises ``ShoalError(INPUT_TOO_LONG)`` naming tokens and limit when ``truncate`` is false.
        """
        rows: list[list[int]] = []
        truncated = 0
        for number, content in enumerate(self._contents(inputs.texts, cut=inputs.truncate)):
            too_long = not content.whole or len(content.ids) + self._specials > self.max_tokens
            if too_long and not inputs.truncate:
                raise self._too_long(number, content, len(inputs.texts[number]))
            truncated += too_long
            rows.append([*self._head, *content.ids[: self.max_tokens - self._specials], *self._tail])
        return PreparedInputs(rows=rows, tokens=sum(map(len, rows)), truncated=truncated)

    def _contents(self, texts: Sequence[str], *, cut: bool) -> Iterator[_Content]:
        # a few at a time, so that a job that is refused for one text stops there
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            yield from self._some(texts[start : start + _TEXTS_AT_ONCE], cut=cut)

    def _some(self, texts: Sequence[str], *, cut: bool) -> list[_Content]:
        most = self.max_tokens * _MOST_CHARACTERS_PER_TOKEN
        length = self.max_tokens * _CHARACTERS_PER_TOKEN if cut else most
        found: dict[int, _Content] = {}
        pending = list(range(len(texts)))
        while pending:
            prefixes = [texts[number][:length] for number in pending]
            encodings = self._tokenizer.encode_batch_fast(prefixes, add_special_tokens=False)
            for number, encoding in zip(pending, encodings, strict=True):
                found[number] = _Content(encoding.ids, whole=len(texts[number]) <= length)
            if length == most:
                break
            enough = self.max_tokens + _MARGIN_TOKENS
            pending = [number for number in pending if not found[number].whole and len(found[number].ids) < enough]
            length = min(most, 4 * length)
        return [found[number] for number in range(len(texts))]

    def _too_long(self, number: int, content: _Content, characters: int) -> ShoalError:
        tokens = len(content.ids) + self._specials
        if content.whole:
            size = f"{tokens} tokens"
        elif tokens > self.max_tokens:
            size = f"more than {tokens} tokens"
        else:
            size = f"{characters} characters, of which {self.max_tokens * _MOST_CHARACTERS_PER_TOKEN} are read"
        return ShoalError(
            Code.INPUT_TOO_LONG,
            f"Input {number} has {size}, the limit of the model is {self.max_tokens} tokens.",
            param="input",
            hint="Shorten the text, split it, or allow truncation.",
        )


def read_tokenizer(path: Path, *, max_tokens: int, pad_id: int) -> TextTokenizer:
    """The tokenizer of a model directory. Raises ``ShoalError(MODEL_UNLOADABLE)``."""
    try:
        if (path / "tokenizer.json").exists():
            tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
        else:
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(str(path), use_fast=True).backend_tokenizer
    except Exception as error:  # the Rust side raises bare Exception
        raise ShoalError(Code.MODEL_UNLOADABLE, f"The tokenizer in {path} cannot be read: {error}.") from error
    return TextTokenizer(tokenizer, max_tokens=max_tokens, pad_id=pad_id)


def _special_ids(tokenizer: Tokenizer, specials: int) -> tuple[list[int], list[int]]:
    """Special tokens before and after a text, found by encoding a short text with and without them."""
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    full = tokenizer.encode("a", add_special_tokens=True).ids
    for start in range(len(full) - len(bare) + 1):
        if full[start : start + len(bare)] == bare and len(full) - len(bare) == specials:
            return full[:start], full[start + len(bare) :]
    raise ShoalError(Code.MODEL_UNLOADABLE, "The tokenizer puts special tokens inside of a text; it is not supported.")
