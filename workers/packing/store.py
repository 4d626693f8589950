"""The adapters of one loaded base model: packed layers, slots, and the memory they take."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence

import torch
from torch import nn

from wire.errors import Code, ShoalError
from workers.packing.artifact import PreparedAdapter
from workers.packing.layers import Bank, BatchPlan, PackedLinear, PlanHolder
from workers.packing.plan import Place, order_rows
from workers.packing.slots import Resident, SlotTable

_SMALLEST_BUCKET = 4
_FIRST_CAPACITY = 4


def rank_bucket(rank: int) -> int:
    """The padded rank of ``rank``: the next power of two, at least 4."""
    return max(_SMALLEST_BUCKET, 1 << (rank - 1).bit_length()) if rank > 0 else _SMALLEST_BUCKET


def pack_linears(module: nn.Module, holder: PlanHolder) -> dict[str, PackedLinear]:
    """Replace every ``nn.Linear`` below ``module`` by a packed layer that shares its weights, keyed by
    path.
    """
    layers: dict[str, PackedLinear] = {}
    for path, child in list(module.named_modules()):
        if type(child) is nn.Linear:
            parent_path, _, name = path.rpartition(".")
            layers[path] = PackedLinear(child, holder)
            setattr(module.get_submodule(parent_path), name, layers[path])
    return layers


class PackedAdapters:
    """Slots over the packed layers of one model. Used by the one thread that owns the device.

    Memory grows with use: a module's bank exists once an adapter with that module and rank bucket was
    loaded, and its capacity doubles up to the number of slots. ``limit_bytes`` bounds all banks together.
    """

    def __init__(self, module: nn.Module, *, slots: int, limit_bytes: int | None, device: torch.device) -> None:
        self._holder = PlanHolder()
        self._layers = pack_linears(module, self._holder)
        self._limit_bytes = limit_bytes
        self._device = device
        self._places: dict[str, Place] = {}
        self._modules: dict[str, tuple[str, ...]] = {}
        self._capacity: dict[int, int] = {}
        self._free: dict[int, list[int]] = {}
        self.table = SlotTable(slots)
        self.size_bytes = 0

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """(out_features, in_features) of each packable module."""
        return {path: (layer.out_features, layer.in_features) for path, layer in self._layers.items()}

    def load(self, adapter: PreparedAdapter, *, in_use: Collection[str] = (), now: float = 0.0) -> list[str]:
        """Put ``adapter`` into a slot; returns the digests evicted for it, none of them in ``in_use``.

        Raises ``ShoalError(OUT_OF_MEMORY)`` when every slot is in use or pinned or the byte limit leaves no
        room.
        """
        if adapter.digest in self.table:
            return []
        evicted: list[str] = []
        if not self.table.has_free:
            self._evict_one(in_use, evicted)
        bucket = rank_bucket(adapter.rank)
        self._reserve(bucket, adapter, in_use, evicted)
        index = self._free[bucket].pop()
        for path, weights in adapter.modules.items():
            self._bank(path, bucket).write(index, weights.a, weights.b)
        self._places[adapter.digest] = Place(bucket, index)
        self._modules[adapter.digest] = tuple(adapter.modules)
        self.table.occupy(adapter.digest, size_bytes=adapter.size_bytes, now=now)
        return evicted

    def unload(self, digest: str) -> None:
        """Zero the slot of ``digest`` in each module it used and free it. Unknown digests are fine."""
        place = self._places.pop(digest, None)
        if place is None:
            return
        for path in self._modules.pop(digest):
            self._layers[path].banks[place.bucket].clear(place.index)
        self._free[place.bucket].append(place.index)
        self.table.release(digest)

    def residents(self) -> list[Resident]:
        """Adapters that hold a slot, least recently used first."""
        return self.table.residents()

    def plan(self, adapters: Sequence[str | None]) -> tuple[list[int], BatchPlan]:
        """Row order and plan of a batch; every named adapter must be resident (``KeyError`` otherwise)."""
        return order_rows(adapters, self._places, self._device)

    @contextlib.contextmanager
    def running(self, plan: BatchPlan) -> Iterator[None]:
        """Apply ``plan`` to forward passes inside the block."""
        self._holder.plan = plan
        try:
            yield
        finally:
            self._holder.plan = None

    def release_empty(self) -> int:
        """Free the banks of rank buckets that hold no adapter; returns the bytes freed."""
        held = {place.bucket for place in self._places.values()}
        before = self.size_bytes
        for bucket in [bucket for bucket in self._capacity if bucket not in held]:
            del self._capacity[bucket], self._free[bucket]
            for layer in self._layers.values():
                bank = layer.banks.pop(bucket, None)
                if bank is not None:
                    self.size_bytes -= bank.size_bytes
        return before - self.size_bytes

    def _reserve(self, bucket: int, adapter: PreparedAdapter, in_use: Collection[str], evicted: list[str]) -> None:
        """Make a free index in ``bucket`` and banks for the adapter's modules, within the byte limit."""
        while True:
            capacity = self._capacity.get(bucket, 0)
            if not self._free.get(bucket):
                capacity = min(self.table.slots, max(_FIRST_CAPACITY, 2 * capacity))
            needed = self._growth_bytes(bucket, capacity, adapter)
            if self._limit_bytes is None or self.size_bytes + needed <= self._limit_bytes:
                break
            if not self.release_empty():
                same = [digest for digest, place in self._places.items() if place.bucket == bucket]
                victim = self.table.victim(in_use, among=same) or self.table.victim(in_use)
                if victim is None:
                    raise self._no_room(f"{needed} bytes more than the limit of {self._limit_bytes} bytes")
                self.unload(victim)
                evicted.append(victim)
        self._grow(bucket, capacity)
        for path in adapter.modules:
            layer = self._layers[path]
            if bucket not in layer.banks:
                self.size_bytes += layer.bank(bucket, capacity).size_bytes

    def _grow(self, bucket: int, capacity: int) -> None:
        before = self._capacity.get(bucket, 0)
        if capacity == before:
            return
        for layer in self._layers.values():
            if bucket in layer.banks:
                self.size_bytes -= layer.banks[bucket].size_bytes
                self.size_bytes += layer.bank(bucket, capacity).size_bytes
        self._capacity[bucket] = capacity
        self._free.setdefault(bucket, []).extend(range(capacity - 1, before - 1, -1))

    def _growth_bytes(self, bucket: int, capacity: int, adapter: PreparedAdapter) -> int:
        total = 0
        for path, layer in self._layers.items():
            bank = layer.banks.get(bucket)
            if bank is not None or path in adapter.modules:
                held = 0 if bank is None else bank.a.shape[0]
                total += 4 * bucket * (layer.in_features + layer.out_features) * max(0, capacity - held)
        return total

    def _evict_one(self, in_use: Collection[str], evicted: list[str]) -> None:
        victim = self.table.victim(in_use)
        if victim is None:
            raise self._no_room(f"all {self.table.slots} slots are in use or pinned")
        self.unload(victim)
        evicted.append(victim)

    def _bank(self, path: str, bucket: int) -> Bank:
        return self._layers[path].bank(bucket, self._capacity[bucket])

    def _no_room(self, reason: str) -> ShoalError:
        return ShoalError(
            Code.OUT_OF_MEMORY,
            f"No room for another adapter: {reason}.",
            hint="Retry, unpin adapters, or give the worker more slots or memory.",
        )
