"""A device that exists as arithmetic: what it holds, what it evicts, and how long a batch takes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field

from wire.registry import ModelRecord
from wire.telemetry import Eviction, ResidentAdapter, ResidentModel
from workers.batching.cost import Cost

DEFAULT_MODEL_BYTES = 100_000_000
ADAPTER_BYTES = 1_000_000


@dataclass(slots=True)
class HeldAdapter:
    """An adapter in a slot. Times are seconds since the epoch."""

    slot: int
    loaded: float
    last_used: float
    version: str | None
    hits: int = 0
    pinned: bool = False


@dataclass(slots=True)
class HeldModel:
    """A model in the device's memory with its slots, the least recently used adapter first."""

    record: ModelRecord
    loaded: float
    last_used: float
    hits: int = 0
    pinned: bool = False
    adapters: OrderedDict[str, HeldAdapter] = field(default_factory=OrderedDict)

    @property
    def size_bytes(self) -> int:
        return (self.record.size_bytes or DEFAULT_MODEL_BYTES) + ADAPTER_BYTES * len(self.adapters)


@dataclass(slots=True)
class SimulatedDevice:
    """``cost`` is the stated model of a batch's time: ``a + b · tokens + c · adapters``."""

    cost: Cost
    slots: int
    memory_bytes: int
    model_load_s: float
    adapter_load_s: float
    models: dict[str, HeldModel] = field(default_factory=dict)
    loads: int = 0
    evicted: list[Eviction] = field(default_factory=list)

    @property
    def used_bytes(self) -> int:
        """Bytes that models and adapters take."""
        return sum(one.size_bytes for one in self.models.values())

    def hold(self, record: ModelRecord, in_use: Collection[str], now: float) -> float:
        """Make ``record`` resident; the seconds it takes. Others that nobody uses leave, the longest unused first."""
        held = self.models.get(record.id)
        if held is not None and held.record.digest == record.digest:
            return 0.0
        self.models[record.id] = HeldModel(record, loaded=now, last_used=now, pinned=record.pinned)
        self.loads += 1
        for name in sorted(self.models, key=lambda one: self.models[one].last_used):
            if self.used_bytes <= self.memory_bytes:
                break
            if name != record.id and name not in in_use and not self.models[name].pinned:
                self._drop_model(name, f"{record.id} needed its memory", now)
        return self.model_load_s

    def hold_adapter(
        self, model: HeldModel, digest: str, version: str | None, in_use: Collection[str], now: float
    ) -> float | None:
        """Put an adapter into a slot; the seconds it takes, ``None`` while all slots are in use."""
        if digest in model.adapters:
            return 0.0
        if len(model.adapters) >= self.slots:
            victim = next((one for one, held in model.adapters.items() if one not in in_use and not held.pinned), None)
            if victim is None:
                return None
            slot = model.adapters.pop(victim).slot
            self._tell("adapter", victim, "its slot was needed, it was used the longest ago", now)
        else:
            slot = min(set(range(self.slots)) - {held.slot for held in model.adapters.values()})
        model.adapters[digest] = HeldAdapter(slot, loaded=now, last_used=now, version=version)
        self.loads += 1
        return self.adapter_load_s

    def touch(self, model: HeldModel, digest: str | None, rows: int, now: float) -> None:
        """Rows ran on ``model``, with the adapter ``digest``."""
        model.last_used, model.hits = now, model.hits + rows
        if digest is not None and (held := model.adapters.get(digest)) is not None:
            held.last_used, held.hits = now, held.hits + rows
            model.adapters.move_to_end(digest)

    def drop(self, digest: str, in_use: Collection[str], reason: str, now: float) -> bool:
        """Free a model or adapter by id or digest unless it is in use; whether nothing holds it any more."""
        for name in [name for name, one in self.models.items() if digest in (name, one.record.digest)]:
            if name in in_use:
                return False
            self._drop_model(name, reason, now)
        for model in self.models.values():
            if digest in model.adapters:
                if digest in in_use:
                    return False
                del model.adapters[digest]
                self._tell("adapter", digest, reason, now)
        return True

    def pin(self, digest: str, *, pinned: bool) -> bool:
        """Keep a resident model or adapter (or no longer); whether it is here."""
        found = False
        for name, model in self.models.items():
            if digest in (name, model.record.digest):
                model.pinned = found = True
                model.pinned = pinned
            if digest in model.adapters:
                model.adapters[digest].pinned, found = pinned, True
        return found

    def resident_models(self) -> list[ResidentModel]:
        """As telemetry tells it."""
        return [
            ResidentModel(
                id=name,
                digest=one.record.digest,
                size_bytes=one.size_bytes,
                pinned=one.pinned,
                slots=0 if one.record.is_version else self.slots,
                slots_used=len(one.adapters),
                version=name if one.record.is_version else None,
                hits=one.hits,
                loaded=one.loaded,
                last_used=one.last_used,
            )
            for name, one in self.models.items()
        ]

    def resident_adapters(self) -> list[ResidentAdapter]:
        """As telemetry tells it."""
        return [
            ResidentAdapter(
                digest=digest,
                model=name,
                size_bytes=ADAPTER_BYTES,
                slot=one.slot,
                pinned=one.pinned,
                hits=one.hits,
                loaded=one.loaded,
                last_used=one.last_used,
                version=one.version,
            )
            for name, model in self.models.items()
            for digest, one in model.adapters.items()
        ]

    def take_counts(self) -> tuple[int, list[Eviction]]:
        """Loads and evictions since the last call."""
        loads, self.loads = self.loads, 0
        evicted, self.evicted = self.evicted, []
        return loads, evicted

    def _drop_model(self, name: str, reason: str, now: float) -> None:
        self._tell("model", self.models.pop(name).record.digest, reason, now)

    def _tell(self, kind: str, digest: str, reason: str, now: float) -> None:
        self.evicted.append(Eviction(kind=kind, digest=digest, reason=reason, at=now))
