"""How REST bodies name where an alias points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from loras.services.aliases import ANYTHING, AnyTarget, Split
from wire.errors import Code, ShoalError


def read_split(form: Mapping[str, Any]) -> Split:
    """The wanted target: exactly one of ``version`` and ``split``. Raises ``ShoalError(INVALID_REQUEST)``."""
    if ("version" in form) == ("split" in form):
        raise ShoalError(
            Code.INVALID_REQUEST,
            "Name exactly one of `version` and `split`.",
            param="version",
            hint='{"version": 4} or {"split": {"3": 95, "4": 5}}',
        )
    return {form["version"]: 100} if "version" in form else _weights(form["split"].items(), "split")


def read_expect(form: Mapping[str, Any]) -> Split | AnyTarget | None:
    """Where the caller believes the alias points: a split, ``{"version": 3}``, ``{"split": …}``, null for nowhere."""
    if "expect" not in form:
        return ANYTHING
    expect = form["expect"]
    if expect is None:
        return None
    if not isinstance(expect, Mapping):
        raise ShoalError(Code.INVALID_REQUEST, "`expect` is an object or null.", param="expect")
    if set(expect) == {"version"}:
        return _weights([(expect["version"], 100)], "expect")
    inner = expect["split"] if set(expect) == {"split"} else expect
    if not isinstance(inner, Mapping):
        raise ShoalError(Code.INVALID_REQUEST, "`expect.split` is an object.", param="expect")
    return _weights(inner.items(), "expect")


def _weights(split: Iterable[tuple[Any, Any]], param: str) -> Split:
    pairs = list(split)
    try:
        found = {int(number): int(weight) for number, weight in pairs}
    except (TypeError, ValueError, OverflowError):
        raise ShoalError(
            Code.INVALID_REQUEST, f"`{param}` maps version numbers to whole weights.", param=param
        ) from None
    if len(found) < len(pairs):
        raise ShoalError(Code.INVALID_REQUEST, f"`{param}` names one version number twice.", param=param)
    return found
