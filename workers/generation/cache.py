"""Keys and values of the texts in the making, in slots of a few widths within one budget of bytes.

A slab has rows of one width. The rows in use are always its first ones, so one attention call reads a slab's texts
where they lie. A text starts in the narrowest rows that hold it and moves to wider ones as it grows, which copies each
token less than once in the mean. What no text uses is zero: a masked place must hold a finite number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from workers.oom import is_out_of_memory

_NARROWEST = 128
_SLAB_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer keeps of a token: ``heads`` keys of ``key_size`` and as many values of ``value_size``."""

    heads: int
    key_size: int
    value_size: int


@dataclass(slots=True, eq=False)
class Lease:
    """A text's row. ``written`` tokens of it may hold something. The cache moves leases; nobody keeps their numbers."""

    slab: Slab
    row: int
    written: int = 0


@dataclass(slots=True, eq=False)
class Slab:
    """``keys[layer]`` is (rows, heads, width, key size), ``values[layer]`` alike; ``leases`` are in order of rows."""

    width: int
    rows: int
    keys: list[Tensor]
    values: list[Tensor]
    leases: list[Lease] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in (*self.keys, *self.values))

    def copy_row(self, row: int, target: Slab, target_row: int, tokens: int) -> None:
        """Put the first ``tokens`` of ``row`` into a row of ``target``."""
        for layer, (keys, values) in enumerate(zip(self.keys, self.values, strict=True)):
            target.keys[layer][target_row, :, :tokens].copy_(keys[row, :, :tokens])
            target.values[layer][target_row, :, :tokens].copy_(values[row, :, :tokens])

    def clear_row(self, row: int, tokens: int) -> None:
        for tensor in (*self.keys, *self.values):
            tensor[row, :, :tokens].zero_()


class KeyValueCache:
    """Slots of one model. ``reclaim(bytes)`` is asked to free memory that counts against the same budget; it returns
    how many bytes it holds after that."""

    def __init__(
        self,
        shapes: Sequence[LayerShape],
        *,
        dtype: torch.dtype,
        device: torch.device,
        limit_bytes: int,
        most_tokens: int,
    ) -> None:
        self._shapes = list(shapes)
        self._dtype = dtype
        self._device = device
        self._slabs: list[Slab] = []
        self.limit_bytes = limit_bytes
        self.token_bytes = dtype.itemsize * sum(one.heads * (one.key_size + one.value_size) for one in shapes)
        # a text that has all of the budget still fits: its widest row is the model's limit or what the budget holds
        self.most_tokens = min(most_tokens, limit_bytes // self.token_bytes)
        self.reclaim: Callable[[int], int] = lambda _: 0

    @property
    def size_bytes(self) -> int:
        """Bytes of all slabs."""
        return sum(slab.size_bytes for slab in self._slabs)

    @property
    def slabs(self) -> list[Slab]:
        """Slabs that texts use."""
        return [slab for slab in self._slabs if slab.leases]

    def lease(self, tokens: int) -> Lease | None:
        """A row for ``tokens``, or ``None`` when the budget has none now."""
        width = self._width(tokens)
        slab = next((one for one in self._slabs if one.width == width and len(one.leases) < one.rows), None)
        slab = slab or self._add(width)
        if slab is None:
            return None
        lease = Lease(slab, len(slab.leases))
        slab.leases.append(lease)
        return lease

    def grow(self, lease: Lease, tokens: int) -> bool:
        """Give a text a row for ``tokens``; false, with all as it was, when the budget has none now."""
        if tokens <= lease.slab.width:
            return True
        wider = self.lease(tokens)
        if wider is None:
            return False
        lease.slab.copy_row(lease.row, wider.slab, wider.row, lease.written)
        wider.written = lease.written
        self.release(lease)
        # the text keeps its lease: the new row becomes its own
        lease.slab, lease.row, lease.written = wider.slab, wider.row, wider.written
        lease.slab.leases[lease.row] = lease
        return True

    def release(self, lease: Lease) -> None:
        """Free a text's row; the slab's last row takes its place."""
        slab, last = lease.slab, lease.slab.leases[-1]
        if last is not lease:
            slab.copy_row(last.row, slab, lease.row, last.written)
            slab.leases[lease.row] = last
            if lease.written > last.written:
                self._clear_tail(slab, lease.row, last.written, lease.written)
        slab.leases.pop()
        slab.clear_row(len(slab.leases), last.written)
        if last is not lease:
            last.row = lease.row

    def trim(self) -> int:
        """Give back slabs that no text uses; returns the bytes freed."""
        freed = sum(slab.size_bytes for slab in self._slabs if not slab.leases)
        self._slabs = self.slabs
        return freed

    def _clear_tail(self, slab: Slab, row: int, start: int, stop: int) -> None:
        for tensor in (*slab.keys, *slab.values):
            tensor[row, :, start:stop].zero_()

    def _width(self, tokens: int) -> int:
        return min(self.most_tokens, max(_NARROWEST, 1 << (tokens - 1).bit_length()))

    def _add(self, width: int) -> Slab | None:
        rows = max(1, _SLAB_TOKENS // width)
        row_bytes = width * self.token_bytes
        if self._free_bytes(0) < rows * row_bytes:
            self.trim()
        # ended texts go when not a single row fits, and then for as many as a slab has
        free = self._free_bytes(0)
        if free < row_bytes:
            free = self._free_bytes(rows * row_bytes)
        if free < row_bytes:
            return None
        try:
            return self._allocate(width, min(rows, free // row_bytes))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return None  # the device has less than the budget says: the text waits as for the budget

    def _free_bytes(self, wanted: int) -> int:
        """What the budget has left, after as much was reclaimed as ``wanted`` needs."""
        left = self.limit_bytes - self.size_bytes
        over = wanted - (left - self.reclaim(0))
        return left - self.reclaim(max(0, over))

    def _allocate(self, width: int, rows: int) -> Slab:
        def zeros(heads: int, size: int) -> Tensor:
            return torch.zeros((rows, heads, width, size), dtype=self._dtype, device=self._device)

        slab = Slab(
            width=width,
            rows=rows,
            keys=[zeros(one.heads, one.key_size) for one in self._shapes],
            values=[zeros(one.heads, one.value_size) for one in self._shapes],
        )
        self._slabs.append(slab)
        return slab
