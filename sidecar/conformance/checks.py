"""What a check of the suite is, and how the suite reports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S")


class NotConformant(AssertionError):
    """The other side broke the protocol; the message says how."""


@dataclass(frozen=True, slots=True)
class Check(Generic[S]):
    """One sentence of the protocol and the code that tries it on a subject."""

    sentence: str
    run: Callable[[S], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a check found; ``problem`` is empty when it held."""

    sentence: str
    problem: str = ""


def require(condition: object, problem: str) -> None:
    """Raise ``NotConformant(problem)`` unless ``condition`` holds."""
    if not condition:
        raise NotConformant(problem)


async def run_checks(checks: list[Check[S]], subject: S) -> list[Outcome]:
    """Try every check, one after the other; a broken one does not stop the rest."""
    outcomes = []
    for check in checks:
        try:
            await check.run(subject)
        except (NotConformant, TimeoutError, OSError, ValueError) as error:
            outcomes.append(Outcome(check.sentence, f"{type(error).__name__}: {error}"))
        else:
            outcomes.append(Outcome(check.sentence))
    return outcomes
