"""Keys and values of ended texts, for requests that begin in the same way."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from workers.generation.cache import Lease

LEAST_TOKENS = 16
"""A copy of less saves nothing."""
_MOST_KEPT = 256
"""Looking for the longest common beginning is linear in the texts kept."""


@dataclass(slots=True, eq=False)
class _Kept:
    """Keys and values (heads, tokens, size) per layer. ``owner`` is the version digest, ``None`` for the base model."""

    owner: str | None
    tokens: NDArray[np.int64]
    keys: list[Tensor]
    values: list[Tensor]

    @property
    def size_bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in (*self.keys, *self.values))


class Prefixes:
    """Least recently used goes first. What one version computed is never used for another."""

    def __init__(self, limit_bytes: int) -> None:
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._number = 0
        self.limit_bytes = limit_bytes
        self.size_bytes = 0

    def keep(self, owner: str | None, tokens: Sequence[int], lease: Lease, *, free_bytes: int) -> None:
        """Copy what ``lease`` holds for ``tokens``, within ``free_bytes`` and what older texts give back."""
        count = len(tokens)
        slab = lease.slab
        needed = slab.size_bytes // (slab.rows * slab.width) * count
        limit = min(self.limit_bytes, self.size_bytes + free_bytes)
        if count < LEAST_TOKENS or needed > limit:
            return
        ids = np.asarray(tokens, dtype=np.int64)
        for number, kept in list(self._kept.items()):
            shared = kept.owner == owner and common_tokens(kept.tokens, ids)
            if shared == len(ids):  # all of it is there already
                self._kept.move_to_end(number)
                return
            if shared == len(kept.tokens):
                self._drop(number)
        while self._kept and (self.size_bytes + needed > limit or len(self._kept) >= _MOST_KEPT):
            self._drop(next(iter(self._kept)))
        kept = _Kept(
            owner,
            ids,
            [keys[lease.row, :, :count].clone() for keys in slab.keys],
            [values[lease.row, :, :count].clone() for values in slab.values],
        )
        self._number += 1
        self._kept[self._number] = kept
        self.size_bytes += kept.size_bytes

    def restore(self, owner: str | None, tokens: Sequence[int], lease: Lease) -> int:
        """Put the longest kept beginning of ``tokens`` into ``lease``; returns how many tokens that is."""
        ids = np.asarray(tokens, dtype=np.int64)
        best, number = max(
            ((common_tokens(kept.tokens, ids), key) for key, kept in self._kept.items() if kept.owner == owner),
            default=(0, 0),
        )
        if best < LEAST_TOKENS:
            return 0
        kept = self._kept[number]
        self._kept.move_to_end(number)
        for layer, (keys, values) in enumerate(zip(kept.keys, kept.values, strict=True)):
            lease.slab.keys[layer][lease.row, :, :best].copy_(keys[:, :best])
            lease.slab.values[layer][lease.row, :, :best].copy_(values[:, :best])
        lease.written = best
        return best

    def shrink(self, size_bytes: int) -> int:
        """Free at least ``size_bytes``, or all there is; returns the bytes still held."""
        target = self.size_bytes - size_bytes
        while self._kept and self.size_bytes > target:
            self._drop(next(iter(self._kept)))
        return self.size_bytes

    def clear(self) -> None:
        self._kept.clear()
        self.size_bytes = 0

    def _drop(self, number: int) -> None:
        self.size_bytes -= self._kept.pop(number).size_bytes


def common_tokens(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    """Length of the common beginning."""
    length = min(len(one), len(other))
    different = np.flatnonzero(one[:length] != other[:length])
    return int(different[0]) if len(different) else length
