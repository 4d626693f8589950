"""Names of adapters, and how requests address a version: ``team/adapter``, ``…:alias``, ``…@3``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from wire.errors import Code, ShoalError

NAME_RULE = (
    "two parts `team/adapter`, each 1 to 63 characters of a-z, 0-9, '.', '_' or '-', starting with a letter or digit"
)
PART = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}\Z")
LIVE = "live"


@dataclass(frozen=True, slots=True)
class FullName:
    """Checked name of an adapter."""

    team: str
    adapter: str

    def __str__(self) -> str:
        return f"{self.team}/{self.adapter}"


@dataclass(frozen=True, slots=True)
class Address:
    """What a request's ``model`` field names inside an adapter: an alias or a version number."""

    name: FullName
    alias: str | None = LIVE
    version: int | None = None


def valid_part(text: str) -> bool:
    """Whether ``text`` may be a team, adapter or alias name."""
    return PART.match(text) is not None


def parse_full_name(text: str, *, param: str = "name") -> FullName:
    """The checked full name. Raises ``ShoalError(INVALID_NAME)`` naming the offending part."""
    parts = text.split("/")
    if len(parts) != 2:
        raise ShoalError(Code.INVALID_NAME, f"{text[:200]!r} is not a full name: {NAME_RULE}.", param=param)
    for part in parts:
        if not valid_part(part):
            raise ShoalError(
                Code.INVALID_NAME,
                f"{part[:200]!r} is not allowed in a name: {NAME_RULE}.",
                param=param,
            )
    return FullName(*parts)


def parse_address(text: str) -> Address | None:
    """How ``text`` addresses an adapter, or ``None`` when it has not the form of an adapter address."""
    base, at, number = text.partition("@")
    if at:
        name = _full_name_or_none(base)
        if name is None or not number.isascii() or not number.isdigit() or len(number) > 9:
            return None
        return Address(name, alias=None, version=int(number))
    base, colon, alias = text.partition(":")
    name = _full_name_or_none(base)
    if name is None or (colon and not valid_part(alias)):
        return None
    return Address(name, alias=alias if colon else LIVE)


def _full_name_or_none(text: str) -> FullName | None:
    parts = text.split("/")
    if len(parts) != 2 or not all(valid_part(part) for part in parts):
        return None
    return FullName(*parts)


def nearest_names(wanted: str, known: Iterable[str], *, limit: int = 3) -> list[str]:
    """Up to ``limit`` known names close to ``wanted``, nearest first (difflib ratio, cut-off 0.5)."""
    return difflib.get_close_matches(wanted, list(known), n=limit, cutoff=0.5)
