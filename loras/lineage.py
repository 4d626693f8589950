"""The way from base model over versions to the workers that hold them, laid out as a drawing; the table of residents is
its twin in text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loras.page_rows import AdapterPage, VersionRow
from loras.residency import ResidentRow

BOX_WIDTH, BOX_HEIGHT, PITCH = 236, 44, 56
COLUMNS_AT = (0, 322, 644)
WIDTH = COLUMNS_AT[-1] + BOX_WIDTH
MOST = 6
MAX_LETTERS = 28


@dataclass(frozen=True, slots=True)
class Box:
    """One box with its upper left corner; ``kind`` is ``base``, ``version`` or ``worker``."""

    kind: str
    x: int
    y: int
    title: str
    note: str
    strong: bool = False

    @property
    def text_y(self) -> tuple[int, int]:
        """Base lines of title and note."""
        return self.y + 19, self.y + 35


@dataclass(frozen=True, slots=True)
class Lineage:
    """Boxes and the lines between them (SVG path data) in ``width`` by ``height``."""

    boxes: list[Box]
    lines: list[str]
    height: int
    width: int = WIDTH


def draw_lineage(adapter: AdapterPage, residents: Sequence[ResidentRow]) -> Lineage | None:
    """The drawing of what answers or is resident, at most six of a kind; ``None`` while nothing is ready."""
    versions = _versions(adapter, residents)
    if not versions:
        return None
    workers = list({row.worker: row for row in residents}.values())[:MOST]
    rows = max(len(versions), len(workers), 1)
    base = Box("base", COLUMNS_AT[0], _top(0, 1, rows), *_base(adapter))
    shown = {
        version.number: Box(
            "version",
            COLUMNS_AT[1],
            _top(at, len(versions), rows),
            f"version {version.number}",
            _note(adapter, version),
            bool(version.aliases),
        )
        for at, version in enumerate(versions)
    }
    held = {
        row.worker: Box("worker", COLUMNS_AT[2], _top(at, len(workers), rows), _cut(row.title), _held(row, residents))
        for at, row in enumerate(workers)
    }
    lines = [_line(base, box) for box in shown.values()]
    lines += [
        _line(shown[row.number], held[row.worker])
        for row in residents
        if row.number in shown and row.worker in held and not row.stale
    ]
    return Lineage([base, *shown.values(), *held.values()], lines, rows * PITCH - (PITCH - BOX_HEIGHT))


def _versions(adapter: AdapterPage, residents: Sequence[ResidentRow]) -> list[VersionRow]:
    resident = {row.number for row in residents}
    found = [row for row in adapter.versions if row.digest and (row.aliases or row.number in resident)]
    return sorted(found, key=lambda row: (not row.aliases, -row.number))[:MOST]


def _top(at: int, count: int, rows: int) -> int:
    """Upper edge of box ``at`` of ``count``, centred among ``rows``."""
    return at * PITCH + (rows - count) * PITCH // 2


def _base(adapter: AdapterPage) -> tuple[str, str]:
    if not adapter.base_model:
        return "all weights of its own", "no base model"
    owner, _, name = adapter.base_model.rpartition("/")
    return _cut(name), f"base model of {owner}" if owner else "base model"


def _note(adapter: AdapterPage, version: VersionRow) -> str:
    shares = [
        alias.name if len(alias.split) == 1 else f"{alias.name} {_percent(alias.split, version.number)} %"
        for alias in adapter.aliases
        if version.number in alias.split
    ]
    return _cut(" · ".join([*shares, version.mode]))


def _percent(split: dict[int, int], number: int) -> str:
    return f"{100 * split[number] / (sum(split.values()) or 1):g}"


def _held(row: ResidentRow, residents: Sequence[ResidentRow]) -> str:
    if row.stale:
        return "not heard of"
    hits = sum(item.hits for item in residents if item.worker == row.worker)
    return f"{row.tier} · {hits:,} hits"


def _line(left: Box, right: Box) -> str:
    x1, y1, x2, y2 = left.x + BOX_WIDTH, left.y + BOX_HEIGHT // 2, right.x, right.y + BOX_HEIGHT // 2
    middle = (x1 + x2) // 2
    return f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_LETTERS else f"{text[: MAX_LETTERS - 1]}…"
