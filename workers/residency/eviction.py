"""Which models leave a tier when another needs room."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_BUSY_BONUS = 1.0
"""A model with jobs counts as used twice as much: it has to be waited for."""


@dataclass(frozen=True, slots=True)
class HeldModel:
    """A loaded model. ``uses`` is its rank in :class:`workers.residency.uses.Uses`. ``fresh``: it has not served long
    enough to be worth its load. Times are seconds."""

    id: str
    size_bytes: int
    uses: float
    reload_s: float
    pinned: bool = False
    busy: bool = False
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class RoomPlan:
    """``evict`` may go at once; ``drain`` have jobs, which are served first. ``later``: all but fresh models stay, so
    that the question has to be asked again in a moment."""

    evict: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    later: bool = False


def plan_room(held: Sequence[HeldModel], *, needed_bytes: int, limit_bytes: int) -> RoomPlan | None:
    """What has to leave so that ``needed_bytes`` more fit below ``limit_bytes``; ``None`` when pinned models and the
    limit never allow it.

    The least worth goes first: decayed uses times seconds to load again, per byte (GreedyDual-Size-Frequency,
    Cherkasova 1998, with decayed counts in place of its clock). None is in the plan that could stay.
    """
    excess = sum(model.size_bytes for model in held) + needed_bytes - limit_bytes
    movable = [model for model in held if not model.pinned]
    if excess > sum(model.size_bytes for model in movable):
        return None
    if excess <= 0:
        return RoomPlan()
    chosen: list[HeldModel] = []
    freed = 0
    for model in sorted((model for model in movable if not model.fresh), key=worth):
        if freed >= excess:
            break
        chosen.append(model)
        freed += model.size_bytes
    if freed < excess:
        return RoomPlan(later=True)
    for model in reversed(chosen.copy()):
        if freed - model.size_bytes >= excess:
            chosen.remove(model)
            freed -= model.size_bytes
    return RoomPlan(
        evict=tuple(model.id for model in chosen if not model.busy),
        drain=tuple(model.id for model in chosen if model.busy),
    )


def worth(model: HeldModel) -> float:
    """log2 of uses of late times seconds to load again per byte."""
    bonus = _BUSY_BONUS if model.busy else 0.0
    return model.uses + bonus + math.log2(max(model.reload_s, 1e-3)) - math.log2(max(model.size_bytes, 1))
