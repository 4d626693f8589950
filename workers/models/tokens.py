"""Texts to token ids, exactly as the model's own tokenizer does, bounded in time for very long texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from wire.errors import Code, ShoalError
from wire.jobs import EmbeddingInputs
from workers.models.protocol import PreparedInputs

# A text that is cut anyway is tokenized only as far as the cut needs. Word splitting is local, so tokens of
# a prefix are those of the text but for the last word; the margin is more than one word can yield.
_CHARACTERS_PER_TOKEN = 16
_MARGIN_TOKENS = 256


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
        for number, ids in enumerate(self._content(inputs.texts, cut=inputs.truncate)):
            length = len(ids) + self._specials
            if length > self.max_tokens:
                if not inputs.truncate:
                    raise _too_long(number, length, self.max_tokens)
                truncated += 1
                ids = ids[: self.max_tokens - self._specials]
            rows.append([*self._head, *ids, *self._tail])
        return PreparedInputs(rows=rows, tokens=sum(map(len, rows)), truncated=truncated)

    def _content(self, texts: Sequence[str], *, cut: bool) -> list[list[int]]:
        limit = self.max_tokens * _CHARACTERS_PER_TOKEN if cut else None
        short = [text if limit is None else text[:limit] for text in texts]
        encodings = self._tokenizer.encode_batch_fast(short, add_special_tokens=False)
        found = [encoding.ids for encoding in encodings]
        if limit is not None:
            for number, text in enumerate(texts):
                length = limit
                while len(text) > length and len(found[number]) < self.max_tokens + _MARGIN_TOKENS:
                    length *= 4
                    found[number] = self._tokenizer.encode(text[:length], add_special_tokens=False).ids
        return found


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


def _too_long(number: int, length: int, limit: int) -> ShoalError:
    return ShoalError(
        Code.INPUT_TOO_LONG,
        f"Input {number} has {length} tokens, the limit of the model is {limit}.",
        param="input",
        hint="Shorten the text, split it, or allow truncation.",
    )
