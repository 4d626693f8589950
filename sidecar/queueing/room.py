"""How much to ask the queue for: the room of the workers, in jobs, shared among the models they hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

FIRST_GUESS_TOKENS = 32.0
SMOOTHING = 0.05

K = TypeVar("K")


@dataclass(slots=True)
class TokenAverage:
    """Running average of the token estimates of delivered jobs."""

    tokens: float = FIRST_GUESS_TOKENS

    def add(self, tokens: int) -> None:
        """Count one delivered job."""
        self.tokens += SMOOTHING * (max(1, tokens) - self.tokens)

    def jobs_in(self, tokens: int) -> int:
        """Jobs that fit ``tokens`` of room: a worker takes jobs while less than its limit was sent, so round up."""
        return max(0, math.ceil(tokens / max(1.0, self.tokens)))


def room_jobs(rooms_tokens: Sequence[int], ready_tokens: int, average: TokenAverage) -> int:
    """Jobs to have asked for, in sum: the room of all workers less what already waits on this machine."""
    total = sum(max(0, room) for room in rooms_tokens)
    if total <= ready_tokens:
        return 0
    return average.jobs_in(total - ready_tokens)


def share_asks(jobs: int, weights: Mapping[K, float], turn: int) -> dict[K, int]:
    """How many jobs to ask each consumer for, ``jobs`` in sum at most.

    Each gets one ask, the rest goes by weight (recent deliveries). With fewer asks than consumers they go round by
    ``turn``, so that every one is listened to within as many turns as there are consumers.
    """
    names = sorted(weights, key=str)
    if jobs <= 0 or not names:
        return {}
    if jobs < len(names):
        return {names[(turn * jobs + step) % len(names)]: 1 for step in range(jobs)}
    rest = jobs - len(names)
    total = sum(weights.values()) or 1.0
    shares = {name: 1 + int(rest * weights[name] / total) for name in names}
    busiest = max(names, key=lambda name: weights[name])
    shares[busiest] += jobs - sum(shares.values())
    return shares
