"""The tokenizer of a whole model: there, readable, and no larger than the model's vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from loras.validation.files.vocabulary import read_object, tokens_beyond
from loras.validation.findings import clipped, failed, passed
from loras.validation.full.files import ModelFiles
from wire.reports import Finding, Row

CHECK = "Tokenizer"
_FAST = "tokenizer.json"
# what a tokenizer can be made of without its own file
_SETS = (
    ("vocab.txt",), ("vocab.json", "merges.txt"), ("tokenizer.model",), ("sentencepiece.bpe.model",), ("spiece.model",),
)  # fmt: skip
_MAX_VOCABULARY_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Tokenized:
    """The model's files, and how many rows its embedding has."""

    files: ModelFiles
    vocabulary: int


def check_tokenizer(found: Tokenized) -> list[Row]:
    """Its largest id needs a row in the model's embedding."""
    small = found.files.small
    made_of = (_FAST,) if _FAST in small else next((names for names in _SETS if set(names) <= set(small)), None)
    if made_of is None:
        what = (
            f"The upload has no tokenizer: neither {_FAST} nor "
            + ", ".join(" with ".join(names) for names in _SETS)
            + "."
        )
        todo = "Save it into the same folder: tokenizer.save_pretrained(folder)."
        return [failed(CHECK, Finding.TOKENIZER_MISSING, what, todo)]
    count, problem = _count(made_of, small)
    if problem:
        todo = "Save the tokenizer again: tokenizer.save_pretrained(folder)."
        return [failed(CHECK, Finding.TOKENIZER_INVALID, problem, todo)]
    beyond = tokens_beyond(small, found.vocabulary)
    if count > found.vocabulary or beyond:
        largest = max([count - 1, *beyond])
        named = f" {clipped(repr(beyond[max(beyond)]))} is token {max(beyond)}." if beyond else ""
        what = f"The tokenizer has ids up to {largest}, the model has embeddings for {found.vocabulary} tokens.{named}"
        todo = "Upload the tokenizer that belongs to the model, or resize its embeddings before saving."
        return [failed(CHECK, Finding.TOKENIZER_INVALID, what, todo)]
    listed = f"{count:,} tokens in" if count else "made of"
    return [passed(CHECK, f"{listed} {' and '.join(made_of)}; the model has rows for {found.vocabulary:,}")]


def _count(made_of: tuple[str, ...], small: dict[str, Path]) -> tuple[int, str]:
    """Tokens of the vocabulary, by the largest id (0: unknown, in a binary file), and what is wrong with it."""
    name = made_of[0]
    path = small[name]
    if path.stat().st_size > _MAX_VOCABULARY_BYTES:
        return 0, f"{name} has {path.stat().st_size:,} bytes (limit {_MAX_VOCABULARY_BYTES:,})."
    if name == _FAST:
        model = read_object(path).get("model")
        vocabulary = model.get("vocab") if isinstance(model, dict) else None
        if isinstance(vocabulary, list) and vocabulary:
            return len(vocabulary), ""
    elif name == "vocab.json":
        vocabulary = read_object(path)
    elif name == "vocab.txt":
        return path.read_bytes().count(b"\n"), ""
    else:
        return 0, "" if path.stat().st_size else f"{name} is empty."
    if not isinstance(vocabulary, dict) or not vocabulary:
        return 0, f"{name} ({path.stat().st_size:,} bytes) holds no vocabulary."
    ids = [number for number in vocabulary.values() if isinstance(number, int) and number >= 0]
    return max(ids, default=-1) + 1, "" if len(ids) == len(vocabulary) else f"{name} has tokens without an id."
