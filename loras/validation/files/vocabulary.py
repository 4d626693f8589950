"""Tokens that an upload added to its base model's vocabulary, as its tokenizer's files name them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from loras.validation.findings import some

_MAX_FILE_BYTES = 64 << 20


def tokens_beyond(files: Mapping[str, Path], vocabulary: int) -> dict[int, str]:
    """Tokens with ids from ``vocabulary`` on, out of ``added_tokens.json``, ``tokenizer_config.json`` and
    ``tokenizer.json`` (by base name). Files that cannot be read name none."""
    found: dict[int, str] = {}
    for base, read in (
        ("added_tokens.json", _by_text),
        ("tokenizer_config.json", _by_id),
        ("tokenizer.json", _of_tokenizer),
    ):
        for number, text in read(read_object(files.get(base))).items():
            if number >= vocabulary:
                found.setdefault(number, text)
    return dict(sorted(found.items()))


def name_tokens(files: Mapping[str, Path], vocabulary: int, rows: int) -> str:
    """The tokens that rows ``vocabulary`` to ``rows - 1`` of an embedding are for, as text for people."""
    if rows < vocabulary:
        return f" The rows of tokens {rows} to {vocabulary - 1} are missing."
    tokens = {number: text for number, text in tokens_beyond(files, vocabulary).items() if number < rows}
    if tokens:
        return f" Added tokens: {some((f'{text!r} ({number})' for number, text in tokens.items()), limit=6)}."
    return f" Rows {vocabulary} to {rows - 1} are for tokens that no tokenizer file of the upload names."


def read_object(path: Path | None, *, limit_bytes: int = _MAX_FILE_BYTES) -> dict[str, object]:
    """The JSON object in ``path``; empty when there is none, when it is none, or above ``limit_bytes``."""
    if path is None or path.stat().st_size > limit_bytes:
        return {}
    try:
        parsed = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return {}
    return cast(dict[str, object], parsed) if isinstance(parsed, dict) else {}


def _by_text(raw: dict[str, object]) -> dict[int, str]:
    return {number: text for text, number in raw.items() if isinstance(number, int)}


def _by_id(raw: dict[str, object]) -> dict[int, str]:
    listed = raw.get("added_tokens_decoder")
    if not isinstance(listed, dict):
        return {}
    return {
        int(number): str(entry.get("content"))
        for number, entry in listed.items()
        if isinstance(entry, dict) and str(number).isascii() and str(number).isdecimal() and len(str(number)) < 10
    }


def _of_tokenizer(raw: dict[str, object]) -> dict[int, str]:
    listed = raw.get("added_tokens")
    if not isinstance(listed, list):
        return {}
    return {
        entry["id"]: str(entry.get("content"))
        for entry in listed
        if isinstance(entry, dict) and isinstance(entry.get("id"), int)
    }
