"""The rows of an evaluation: JSONL that an uploader attaches, checked line by line."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from wire.errors import Code, ShoalError

MAX_BYTES = 1024 * 1024
MAX_ROWS = 500
MAX_TEXT_CHARS = 8_000
TOLD_PROBLEMS = 5


class EvaluationKind(StrEnum):
    """What the rows ask, told by their fields."""

    RETRIEVAL = "retrieval"
    CLASSIFICATION = "classification"
    GENERATION = "generation"


FIELDS: dict[EvaluationKind, tuple[str, str]] = {
    EvaluationKind.RETRIEVAL: ("query", "positive"),
    EvaluationKind.CLASSIFICATION: ("text", "label"),
    EvaluationKind.GENERATION: ("prompt", "expected"),
}
_SHAPES = " or ".join(f'{{"{one}": …, "{two}": …}}' for one, two in FIELDS.values())


@dataclass(frozen=True, slots=True)
class EvaluationRows:
    """Checked rows: pairs of (query, positive), (text, label) or (prompt, expected)."""

    kind: EvaluationKind
    pairs: list[tuple[str, str]]


def parse_rows(data: bytes) -> EvaluationRows:
    """The rows in ``data``. Raises ``ShoalError(INVALID_REQUEST)`` naming up to five lines and what is wrong there."""
    if len(data) > MAX_BYTES:
        raise _refused(f"The evaluation has {len(data)} bytes; at most {MAX_BYTES} are taken.")
    kind: EvaluationKind | None = None
    pairs: list[tuple[str, str]] = []
    problems: list[str] = []
    for number, line in enumerate(data.removeprefix(codecs.BOM_UTF8).splitlines(), start=1):
        if not line.strip():
            continue
        found = _read_line(line, kind)
        if isinstance(found, str):
            problems.append(f"line {number}: {found}")
            if len(problems) == TOLD_PROBLEMS:
                break
            continue
        kind = found[0]
        pairs.append(found[1])
        if len(pairs) > MAX_ROWS:
            raise _refused(f"The evaluation has more than {MAX_ROWS} rows.")
    if problems:
        raise _refused(f"The evaluation cannot be used. {'; '.join(problems)}.")
    if kind is None:
        raise _refused("The evaluation has no row.")
    return EvaluationRows(kind, pairs)


def _read_line(line: bytes, kind: EvaluationKind | None) -> tuple[EvaluationKind, tuple[str, str]] | str:
    """The kind and pair of one line, or what is wrong with it."""
    try:
        row: Any = msgspec.json.decode(line)
    except RecursionError:
        return "nested too deeply to be read"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return f"no JSON ({error})"
    if not isinstance(row, dict):
        return f"a JSON {type(row).__name__}, not an object"
    own = next((known for known, names in FIELDS.items() if all(name in row for name in names)), None)
    if own is None:
        return f"has the fields {', '.join(map(repr, list(row)[:5])) or 'none'}; expected {_SHAPES}"
    if kind is not None and own is not kind:
        return f"is a row for {own}, those before it are for {kind}"
    first, second = (row[name] for name in FIELDS[own])
    second = str(second) if own is EvaluationKind.CLASSIFICATION and isinstance(second, (int, bool)) else second
    for name, value in zip(FIELDS[own], (first, second), strict=True):
        if not isinstance(value, str) or not value.strip():
            return f"{name!r} is no text"
        if len(value) > MAX_TEXT_CHARS:
            return f"{name!r} has {len(value)} characters; at most {MAX_TEXT_CHARS} are taken"
    return own, (first, second)


def _refused(message: str) -> ShoalError:
    hint = f"Send JSON lines, one object each: {_SHAPES}."
    return ShoalError(Code.INVALID_REQUEST, message, param="evaluation", hint=hint)
