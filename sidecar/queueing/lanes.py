"""Which lanes a machine listens to all the time: its home lanes, by rendezvous hashing."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from functools import lru_cache

from wire.subjects import LANE, LANES


def home_lanes(model: str, machine: str, others: Collection[str]) -> frozenset[str]:
    """Lanes of ``model`` that ``machine`` always has asks open for, when ``others`` serve the model too.

    Each lane has one home (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998), so its
    adapters become resident there, and a machine that comes or goes moves no more lanes than it must. Lane 0 is
    everybody's. What waits in a lane that is not home is taken after a moment by whoever has room.
    """
    return _home_lanes(model, machine, frozenset(others) - {machine})


@lru_cache(maxsize=4096)
def _home_lanes(model: str, machine: str, others: frozenset[str]) -> frozenset[str]:
    if not others:
        return frozenset({LANE})
    lanes = (str(number) for number in range(1, LANES + 1))
    return frozenset({LANE, *(lane for lane in lanes if _home(model, lane, {machine, *others}) == machine)})


def _home(model: str, lane: str, machines: Collection[str]) -> str:
    return max(machines, key=lambda one: (hashlib.blake2b(f"{model}\0{lane}\0{one}".encode()).digest(), one))
