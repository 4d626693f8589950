"""Rows of a report, and the two ways in which a validation stops early."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from wire.reports import Finding, Outcome, Question, Row

Found = TypeVar("Found")
Check = Callable[[Found], Iterable[Row]]

_SHOWN = 3


def passed(check: str, found: str) -> Row:
    """A check that found nothing wrong; people see that it was made."""
    return Row(check=check, outcome=Outcome.PASS, code=Finding.OK, found=found)


def noted(check: str, code: Finding, found: str, todo: str = "") -> Row:
    """Accepted, with something the uploader should know."""
    return Row(check=check, outcome=Outcome.NOTE, code=code, found=found, todo=todo)


def failed(check: str, code: Finding, found: str, todo: str) -> Row:
    """Refused: what was found, and the next step."""
    return Row(check=check, outcome=Outcome.FAIL, code=code, found=found, todo=todo)


def asked(check: str, code: Finding, found: str, todo: str) -> Row:
    """One fact is missing; a ``Question`` goes with it."""
    return Row(check=check, outcome=Outcome.ASK, code=code, found=found, todo=todo)


class Refused(Exception):
    """A step that cannot go on: ``rows`` say why; with ``question`` the upload waits for an answer."""

    def __init__(self, *rows: Row, question: Question | None = None) -> None:
        super().__init__("; ".join(f"{row.code}: {row.found}" for row in rows))
        self.rows = rows
        self.question = question


def judge(found: Found, checks: Sequence[Check[Found]]) -> list[Row]:
    """Rows of all checks on what was found; raises ``Refused`` with all of them when any says fail."""
    rows = [row for check in checks for row in check(found)]
    if any(row.outcome is Outcome.FAIL for row in rows):
        raise Refused(*rows)
    return rows


def some(names: Iterable[str], *, limit: int = _SHOWN) -> str:
    """The first few names and how many more there are, short enough for one line."""
    listed = [clipped(name) for name in names]
    shown = ", ".join(listed[:limit])
    return shown if len(listed) <= limit else f"{shown} and {len(listed) - limit} more"


def clipped(text: str, *, limit: int = 120) -> str:
    """``text`` as it may be printed: control characters escaped, cut in the middle when long."""
    plain = text if text.isprintable() else ascii(text)[1:-1]
    return plain if len(plain) <= limit else f"{plain[: limit // 2]}…{plain[-limit // 2 :]}"


def shape_text(shape: Sequence[int]) -> str:
    """(16, 384) as ``16×384``."""
    return "×".join(map(str, shape)) or "scalar"


def shown(value: object) -> str:
    """A value out of a file as it may be printed: containers of containers by kind and size only."""
    if isinstance(value, dict) or (
        isinstance(value, list) and (len(value) > 16 or any(isinstance(item, list | dict) for item in value))
    ):
        return f"a {'list' if isinstance(value, list) else 'object'} of {len(value)}"
    return clipped(repr(value))
