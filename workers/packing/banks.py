"""Memory of packed adapters: rank buckets, the capacity of their banks, and where each adapter is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from workers.oom import is_out_of_memory
from workers.packing.artifact import PreparedAdapter
from workers.packing.layers import PackedLinear
from workers.packing.plan import Place

_SMALLEST_BUCKET = 4
_FIRST_CAPACITY = 4


def rank_bucket(rank: int) -> int:
    """The padded rank of ``rank``: the next power of two, at least 4."""
    return max(_SMALLEST_BUCKET, 1 << (rank - 1).bit_length()) if rank > 0 else _SMALLEST_BUCKET


class Banks:
    """Banks over the layers of one model. A module's bank exists once an adapter with that module and rank bucket was
    put; all banks of a bucket use the same indices.
    """

    def __init__(self, layers: Mapping[str, PackedLinear]) -> None:
        self._layers = layers
        self._modules: dict[str, tuple[str, ...]] = {}
        self._capacity: dict[int, int] = {}
        self._free: dict[int, list[int]] = {}
        self.places: dict[str, Place] = {}
        self.size_bytes = 0

    def members(self, bucket: int) -> list[str]:
        """Digests in ``bucket``, in order of their indices."""
        found = [digest for digest, place in self.places.items() if place.bucket == bucket]
        return sorted(found, key=lambda digest: self.places[digest].index)

    def fitting_capacity(self, adapter: PreparedAdapter, *, slots: int, limit_bytes: int | None) -> int | None:
        """The capacity of the adapter's bucket with which it can be put within ``limit_bytes``: doubled when that
        fits, else as much more as does; ``None`` when nothing fits.
        """
        bucket = rank_bucket(adapter.rank)
        held = self._capacity.get(bucket, 0)
        wishes = [held] if self._free.get(bucket) else _growths(held, slots)
        for capacity in wishes:
            if limit_bytes is None or self.size_bytes + self._growth_bytes(bucket, capacity, adapter) <= limit_bytes:
                return capacity
        return None

    def put(self, adapter: PreparedAdapter, capacity: int) -> None:
        """Write ``adapter`` to a free index of its bucket. When memory is short it is not put, and all else stays."""
        bucket = rank_bucket(adapter.rank)
        try:
            self._grow(bucket, capacity, adapter.modules)
        finally:
            self._count()
        index = self._free[bucket].pop()
        try:
            for path, weights in adapter.modules.items():
                self._layers[path].banks[bucket].write(index, weights.a, weights.b)
        except BaseException:
            self._clear(bucket, index, adapter.modules)
            raise
        self.places[adapter.digest] = Place(bucket, index)
        self._modules[adapter.digest] = tuple(adapter.modules)

    def drop(self, digest: str) -> None:
        """Zero the weights of ``digest`` in each module it used and free its index."""
        place = self.places.pop(digest)
        self._clear(place.bucket, place.index, self._modules.pop(digest))

    def release_empty(self) -> int:
        """Free the banks of rank buckets that hold no adapter; returns the bytes freed."""
        before = self.size_bytes
        held = {place.bucket for place in self.places.values()}
        for bucket in [bucket for bucket in self._capacity if bucket not in held]:
            del self._capacity[bucket], self._free[bucket]
            for layer in self._layers.values():
                layer.banks.pop(bucket, None)
        self._count()
        return before - self.size_bytes

    def compact(self) -> int:
        """Shrink every bank to what it holds; returns the bytes freed."""
        before = self.size_bytes
        self.release_empty()
        for bucket in self._capacity:
            self._close_gaps(bucket)
        try:
            for bucket, capacity in self._capacity.items():
                self._shrink(bucket, capacity)
        except (RuntimeError, MemoryError) as error:
            # a bank that is larger than its bucket's capacity does no harm
            if not is_out_of_memory(error):
                raise
        finally:
            self._count()
        return before - self.size_bytes

    @property
    def spare_bytes(self) -> int:
        """What :meth:`compact` would free."""
        kept: dict[int, int] = {}
        for place in self.places.values():
            kept[place.bucket] = kept.get(place.bucket, 0) + 1
        return self.size_bytes - sum(
            _pair_bytes(layer, bucket) * kept.get(bucket, 0)
            for layer in self._layers.values()
            for bucket, bank in layer.banks.items()
            if bank.used
        )

    def least_bytes(self, kept: Iterable[str], adapter: PreparedAdapter) -> int:
        """What ``adapter`` and those of ``kept`` need when nothing else is here."""
        counts: dict[int, int] = {}
        paths: dict[int, set[str]] = {}
        members = [(self.places[digest].bucket, self._modules[digest]) for digest in kept]
        for bucket, modules in [*members, (rank_bucket(adapter.rank), tuple(adapter.modules))]:
            counts[bucket] = counts.get(bucket, 0) + 1
            paths.setdefault(bucket, set()).update(modules)
        return sum(
            count * sum(_pair_bytes(self._layers[path], bucket) for path in paths[bucket])
            for bucket, count in counts.items()
        )

    def _grow(self, bucket: int, capacity: int, modules: Collection[str]) -> None:
        for path, layer in self._layers.items():
            if bucket in layer.banks or path in modules:
                layer.bank(bucket, capacity)
        before = self._capacity.get(bucket, 0)
        self._capacity[bucket] = capacity
        self._free.setdefault(bucket, []).extend(range(capacity - 1, before - 1, -1))

    def _growth_bytes(self, bucket: int, capacity: int, adapter: PreparedAdapter) -> int:
        total = 0
        for path, layer in self._layers.items():
            bank = layer.banks.get(bucket)
            if bank is not None or path in adapter.modules:
                held = 0 if bank is None else bank.a.shape[0]
                total += _pair_bytes(layer, bucket) * max(0, capacity - held)
        return total

    def _close_gaps(self, bucket: int) -> None:
        members = self.members(bucket)
        for target, digest in enumerate(members):
            index = self.places[digest].index
            if index != target:
                for path in self._modules[digest]:
                    self._layers[path].banks[bucket].move(index, target)
                self.places[digest] = Place(bucket, target)
        self._capacity[bucket] = len(members)
        self._free[bucket] = []

    def _shrink(self, bucket: int, capacity: int) -> None:
        for layer in self._layers.values():
            bank = layer.banks.get(bucket)
            if bank is not None and not bank.used:
                del layer.banks[bucket]
            elif bank is not None and bank.a.shape[0] > capacity:
                bank.resize(capacity)

    def _clear(self, bucket: int, index: int, modules: Iterable[str]) -> None:
        for path in modules:
            self._layers[path].banks[bucket].clear(index)
        self._free[bucket].append(index)

    def _count(self) -> None:
        # kept as a number: other threads read it while banks come and go
        self.size_bytes = sum(bank.size_bytes for layer in self._layers.values() for bank in layer.banks.values())


def _growths(held: int, slots: int) -> list[int]:
    wishes = (_FIRST_CAPACITY, 2, 1) if held == 0 else (2 * held, held + held // 2, held + 1)
    return [capacity for wish in wishes if (capacity := min(slots, wish)) > held]


def _pair_bytes(layer: PackedLinear, bucket: int) -> int:
    return layer.weight.element_size() * bucket * (layer.in_features + layer.out_features)
