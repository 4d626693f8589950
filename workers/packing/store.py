"""The adapters of one loaded base model: packed layers, slots, and the memory they take."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence

import torch
from torch import nn

from wire.errors import Code, ShoalError
from workers.packing.artifact import PreparedAdapter
from workers.packing.banks import Banks, rank_bucket
from workers.packing.heads import TaskHead
from workers.packing.layers import BatchPlan, PackedConv1D, PackedLinear, PlanHolder
from workers.packing.plan import order_rows
from workers.packing.shared_inputs import split_shared_inputs
from workers.packing.slots import Resident, SlotTable

_COMPACTED_PART = 4
"""Compacting waits until a quarter of all memory is spare: its cost, a copy of the rest, is then well spent."""


def pack_linears(module: nn.Module, holder: PlanHolder) -> dict[str, PackedLinear]:
    """Replace every linear layer below ``module`` by a packed one that shares its weights, keyed by path."""
    from transformers.pytorch_utils import Conv1D

    kinds: dict[type, type[PackedLinear]] = {nn.Linear: PackedLinear, Conv1D: PackedConv1D}
    layers: dict[str, PackedLinear] = {}
    for path, child in list(module.named_modules()):
        kind = kinds.get(type(child))
        if kind is not None:
            parent_path, _, name = path.rpartition(".")
            layers[path] = kind(child, holder)
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
        split_shared_inputs(module, self._holder)
        self._limit_bytes = limit_bytes
        self._device = device
        self._banks = Banks(self._layers)
        self._head_bytes = 0
        self.table = SlotTable(slots)

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """(out_features, in_features) of each packable module."""
        return {path: (layer.out_features, layer.in_features) for path, layer in self._layers.items()}

    @property
    def size_bytes(self) -> int:
        """Bytes of all banks and heads."""
        return self._banks.size_bytes + self._head_bytes

    def load(self, adapter: PreparedAdapter, *, in_use: Collection[str] = (), now: float = 0.0) -> list[str]:
        """Put ``adapter`` into a slot; returns the digests evicted for it, none of them in ``in_use``.

        Raises ``ShoalError``, with nothing evicted: ADAPTER_UNLOADABLE when the adapter alone is above the byte limit,
        OUT_OF_MEMORY when every slot is in use or pinned or those adapters leave no room within the limit.
        """
        if adapter.digest in self.table:
            return []
        self._check_room(adapter, in_use)
        evicted: list[str] = []
        if not self.table.has_free:
            self._evict(in_use, evicted)
        self._banks.put(adapter, self._make_room(adapter, in_use, evicted))
        head = self._place_head(adapter)
        self.table.occupy(adapter.digest, size_bytes=self._slot_bytes(adapter), now=now, head=head)
        self._head_bytes += _head_bytes(head)
        return evicted

    def unload(self, digest: str) -> None:
        """Zero the slot of ``digest`` in each module it used and free it. Unknown digests are fine."""
        resident = self.table.get(digest)
        if resident is not None:
            self._banks.drop(digest)
            self.table.release(digest)
            self._head_bytes -= _head_bytes(resident.head)

    def residents(self) -> list[Resident]:
        """Adapters that hold a slot, least used of late first."""
        return self.table.residents()

    def plan(self, adapters: Sequence[str | None]) -> tuple[list[int], BatchPlan]:
        """Row order and plan of a batch; every named adapter must be resident (``KeyError`` otherwise)."""
        return order_rows(adapters, self._banks.places, self._device)

    @contextlib.contextmanager
    def running(self, plan: BatchPlan) -> Iterator[None]:
        """Apply ``plan`` to forward passes inside the block."""
        self._holder.plan = plan
        try:
            yield
        finally:
            self._holder.plan = None

    def switch(self, plan: BatchPlan) -> None:
        """Go on with another plan inside of :meth:`running`: a model's head may see fewer rows than its body."""
        self._holder.plan = plan

    def compact(self) -> int:
        """Give back the memory of empty slots; returns the bytes freed."""
        return self._banks.compact()

    def _slot_bytes(self, adapter: PreparedAdapter) -> int:
        """What the adapter holds in the model's dtype, with its head."""
        weights = sum(
            self._layers[path].weight.element_size() * (pair.a.numel() + pair.b.numel())
            for path, pair in adapter.modules.items()
        )
        return weights + _head_bytes(adapter.head)

    def _place_head(self, adapter: PreparedAdapter) -> TaskHead | None:
        try:
            return None if adapter.head is None else adapter.head.to(self._device)
        except BaseException:
            self._banks.drop(adapter.digest)
            raise

    def _check_room(self, adapter: PreparedAdapter, in_use: Collection[str]) -> None:
        limit = self._limit_bytes
        head_bytes = _head_bytes(adapter.head)
        alone = self._banks.least_bytes((), adapter) + head_bytes
        if limit is not None and alone > limit:
            raise ShoalError(
                Code.ADAPTER_UNLOADABLE,
                f"The adapter needs {alone} bytes of slots, this worker allows {limit} bytes for all adapters.",
                hint="Push a version of a lower rank or on fewer modules, or raise SHOAL_ADAPTER_BYTES.",
            )
        held_on = [held for held in self.table.residents() if held.pinned or held.digest in in_use]
        kept = [held.digest for held in held_on]
        if len(kept) >= self.table.slots:
            raise self._no_room(f"all {self.table.slots} slots are in use or pinned")
        needed = self._banks.least_bytes(kept, adapter) + head_bytes
        needed += sum(_head_bytes(held.head) for held in held_on)
        if limit is not None and needed > limit:
            raise self._no_room(f"with those in use and pinned it takes {needed} bytes, the limit is {limit} bytes")

    def _make_room(self, adapter: PreparedAdapter, in_use: Collection[str], evicted: list[str]) -> int:
        """Evict and compact until the adapter fits; returns the capacity to give its bucket."""
        banks = self._banks
        while True:
            heads = self._head_bytes + _head_bytes(adapter.head)
            left = None if self._limit_bytes is None else self._limit_bytes - heads
            capacity = banks.fitting_capacity(adapter, slots=self.table.slots, limit_bytes=left)
            if capacity is not None:
                return capacity
            if banks.release_empty():
                continue
            much = _COMPACTED_PART * banks.spare_bytes >= banks.size_bytes
            if much and banks.compact():
                continue
            same = banks.members(rank_bucket(adapter.rank))
            if (
                not self._evict(in_use, evicted, among=same)
                and not self._evict(in_use, evicted)
                and not banks.compact()
            ):
                raise self._no_room(f"the limit is {self._limit_bytes} bytes")

    def _evict(self, in_use: Collection[str], evicted: list[str], *, among: Collection[str] | None = None) -> bool:
        victim = self.table.victim(in_use, among=among)
        if victim is None:
            return False
        self.unload(victim)
        evicted.append(victim)
        return True

    def _no_room(self, reason: str) -> ShoalError:
        return ShoalError(
            Code.OUT_OF_MEMORY,
            f"No room for another adapter: {reason}.",
            hint="Retry, unpin adapters, or give the worker more slots or memory.",
        )


def _head_bytes(head: TaskHead | None) -> int:
    return 0 if head is None else head.size_bytes
