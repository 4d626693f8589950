"""What one child of the stack is: a command, its environment, how to tell that it is ready, when it stops."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from controlplane.stack.checks import Check, alive
from controlplane.stack.failures import StackError


class StopStage(IntEnum):
    """Order of the stop: what takes requests first, what all others lean on last."""

    EDGE = 0
    WORK = 1
    TRANSPORT = 2
    STORE = 3


@dataclass(frozen=True, slots=True)
class Part:
    """One child.

    ``needs`` names parts that are ready (or, for ``once`` parts, done) before this one starts. ``once`` parts run to
    their end; exit status 0 is their readiness and they are not started again. Lines that match ``noise`` are left out.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    check: Check = alive
    needs: tuple[str, ...] = ()
    once: bool = False
    stop_stage: StopStage = StopStage.WORK
    niceness: int = 0
    grace_s: float = 10.0
    noise: re.Pattern[str] | None = None


def check_plan(parts: Sequence[Part]) -> None:
    """Raise ``StackError`` when names repeat, a need is unknown, or needs form a circle."""
    names = [part.name for part in parts]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise StackError(f"parts named twice: {', '.join(twice)}")
    waiting = {part.name: set(part.needs) for part in parts}
    for name, needs in waiting.items():
        if unknown := sorted(needs - set(names)):
            raise StackError(f"{name} needs {', '.join(unknown)}, which is no part of this stack")
    while waiting:
        free = [name for name, needs in waiting.items() if not needs & waiting.keys()]
        if not free:
            raise StackError(f"these parts wait for each other: {', '.join(sorted(waiting))}")
        for name in free:
            del waiting[name]
