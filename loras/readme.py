"""The README of an upload as blocks of text: no HTML of the author reaches a page, the template escapes every piece."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, islice

from loras.models import Adapter, VersionFile
from loras.storage import MissingContent, artifact_store

MAX_BYTES = 64 * 1024
MAX_BLOCKS = 200
NAMES = ("README.md", "README.txt", "README", "readme.md", "Readme.md")

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---[ \t]*(?:\n|\Z)", re.DOTALL)
# every repetition below ends at a bound or at its first failure: a hostile line costs its length and no more
_HEADING = re.compile(r"#{1,6}\s+(.+)")
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,3}[.)])\s+(.+)")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\(([^()\s]*)(?:\s[^()]*)?\)")
_EMPHASIS = re.compile(r"(\*\*|__)(?=\S)(.{1,200}?)(?<=\S)\1")
_FENCE = ("```", "~~~")


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line, as text or as code."""

    text: str
    code: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """``kind`` is ``heading``, ``paragraph``, ``items`` or ``code``; each line is its spans."""

    kind: str
    lines: list[list[Span]]


@dataclass(frozen=True, slots=True)
class Readme:
    """Blocks of the file at ``path`` of version ``number``; ``cut`` when there is more in the file."""

    path: str
    number: int
    blocks: list[Block]
    cut: bool


def readme_of(adapter: Adapter, number: int) -> Readme | None:
    """The README of one version; ``None`` without one, or when its bytes are gone."""
    files = VersionFile.objects.filter(
        version__adapter=adapter, version__number=number, role=VersionFile.Role.UPLOADED, path__in=NAMES
    )
    found = min(files.select_related("artifact"), key=lambda file: NAMES.index(file.path), default=None)
    if found is None:
        return None
    try:
        with artifact_store().open(found.artifact.sha256) as stream:
            data = stream.read(MAX_BYTES + 1)
    except (MissingContent, OSError):
        return None
    blocks = list(islice(read_blocks(data[:MAX_BYTES].decode("utf-8", errors="replace")), MAX_BLOCKS + 1))
    cut = len(data) > MAX_BYTES or len(blocks) > MAX_BLOCKS
    return Readme(found.path, number, blocks[:MAX_BLOCKS], cut) if blocks else None


def read_blocks(text: str) -> Iterator[Block]:
    """Headings, paragraphs, lists and code of Markdown. All else stays the text that it is: a link shows its address, a
    table its columns. Front matter and comments, which speak to programs, are left out."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    lines = _COMMENT.sub("", _FRONT_MATTER.sub("", text)).split("\n")
    for kind, group in groupby(_kinds(lines), key=lambda item: item[0]):
        found = [line for _, line in group]
        if kind == "code":
            yield Block("code", [[Span("\n".join(found))]])
        elif kind == "paragraph":
            yield Block("paragraph", [_spans(" ".join(line.strip() for line in found))])
        elif kind == "heading":
            yield from (Block("heading", [_spans(line)]) for line in found)
        elif kind == "items":
            yield Block("items", [_spans(line) for line in found])


def _kinds(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Each line with its kind; ``""`` parts one block from the next."""
    fence = ""
    for line in lines:
        bare = line.strip()
        if fence:
            if bare.startswith(fence):
                fence = ""
                yield "", ""
            else:
                yield "code", line
        elif bare.startswith(_FENCE):
            fence = bare[:3]
            yield "", ""
        elif match := _HEADING.match(bare):
            yield "heading", match[1].rstrip("#").rstrip()
        elif match := _ITEM.match(line):
            yield "items", match[1]
        elif bare.startswith("|"):
            yield "code", line
        elif not bare or set(bare) <= {"-", "=", "*", "_"}:
            yield "", ""
        else:
            yield "paragraph", line


def _spans(line: str) -> list[Span]:
    """Text and ``code`` of one line."""
    parts = line.split("`")
    if len(parts) % 2 == 0:
        # an odd one stays a character
        parts[-2:] = [f"{parts[-2]}`{parts[-1]}"]
    return [Span(part if at % 2 else _plain(part), code=at % 2 == 1) for at, part in enumerate(parts) if part]


def _plain(text: str) -> str:
    return _EMPHASIS.sub(r"\2", _LINK.sub(lambda link: " ".join(filter(None, link.groups())), text))
