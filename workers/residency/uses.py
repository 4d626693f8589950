"""How often keys were used of late, in one number each, also of those that were evicted."""

from __future__ import annotations

import math

HALF_LIFE_S = 120.0


class Uses:
    """Decayed use counts: a use counts 1 now and half as much each ``half_life_s`` later.

    Kept as ``log2(sum of 2^(t/half_life))`` over the times ``t`` of the uses (forward decay, Cormode et al., ICDE
    2009), so that two keys compare without a clock. Keys that left memory keep their count: one that comes back is
    worth what it was, while a key that a scan touches once never outweighs those in steady use (the ghost entries of
    ARC, Megiddo and Modha, FAST 2003). At most ``remembered`` keys, the least used are forgotten.
    """

    def __init__(self, *, half_life_s: float = HALF_LIFE_S, remembered: int = 4096) -> None:
        self._half_life_s = half_life_s
        self._remembered = remembered
        self._ranks: dict[str, float] = {}

    def add(self, key: str, *, now: float, hits: int = 1) -> None:
        """``hits`` uses at ``now``, in seconds of any clock that all calls share."""
        if hits <= 0:
            return
        fresh = now / self._half_life_s + math.log2(hits)
        held = self._ranks.get(key, -math.inf)
        larger, smaller = max(held, fresh), min(held, fresh)
        self._ranks[key] = larger + math.log2(1 + 2.0 ** (smaller - larger))
        if len(self._ranks) > 2 * self._remembered:
            best = sorted(self._ranks, key=self._ranks.__getitem__)[-self._remembered :]
            self._ranks = {one: self._ranks[one] for one in best}

    def rank(self, key: str) -> float:
        """Larger means used more of late; one more is twice as much. ``-inf`` for a key without uses."""
        return self._ranks.get(key, -math.inf)

    def count(self, key: str, *, now: float) -> float:
        """The decayed count at ``now``."""
        return float(2.0 ** (self.rank(key) - now / self._half_life_s))

    def __len__(self) -> int:
        return len(self._ranks)
