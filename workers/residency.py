"""Which base models leave a device when another needs room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeldModel:
    """A loaded model. ``kept``: pinned or in use, never evicted. Times are seconds."""

    id: str
    size_bytes: int
    idle_s: float
    reload_s: float
    kept: bool


def choose_evictions(held: Sequence[HeldModel], *, needed_bytes: int, limit_bytes: int) -> list[str] | None:
    """Ids to evict so that ``needed_bytes`` more fit below ``limit_bytes``; ``None`` when they cannot.

    First goes what was idle longest per second that loading it again would take, larger models before smaller ones
    (GreedyDual-Size-Frequency, Cherkasova 1998, with idle time in place of frequency).
    """
    excess = sum(model.size_bytes for model in held) + needed_bytes - limit_bytes
    chosen: list[str] = []
    candidates = [model for model in held if not model.kept]
    for model in sorted(candidates, key=_worth_evicting, reverse=True):
        if excess <= 0:
            break
        chosen.append(model.id)
        excess -= model.size_bytes
    return chosen if excess <= 0 else None


def _worth_evicting(model: HeldModel) -> float:
    return model.idle_s * model.size_bytes / max(model.reload_s, 1e-3)
