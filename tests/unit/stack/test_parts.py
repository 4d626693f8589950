"""A plan that cannot be started is refused before anything runs."""

from __future__ import annotations

import pytest

from controlplane.stack.failures import StackError
from controlplane.stack.parts import Part, check_plan


def part(name: str, *needs: str) -> Part:
    return Part(name, ("true",), {}, needs=needs)


def test_any_order_of_parts_is_fine() -> None:
    check_plan([part("web", "db", "bus"), part("db"), part("bus", "db")])


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([part("web"), part("web")], "named twice: web"),
        ([part("web", "db")], "web needs db"),
        ([part("a", "b"), part("b", "c"), part("c", "a"), part("d")], "wait for each other: a, b, c"),
        ([part("a", "a")], "wait for each other: a"),
    ],
)
def test_refused(parts: list[Part], words: str) -> None:
    with pytest.raises(StackError, match=words):
        check_plan(parts)
