"""What is resident on the device: adopting and evicting models, loading, pinning and evicting adapters."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

import structlog

from wire.errors import Code, ErrorInfo, ShoalError
from wire.frames import Ensured, Evict, Pin
from wire.telemetry import Eviction, ResidentAdapter, ResidentModel
from workers.engine.answers import Answers
from workers.engine.budget import Budget
from workers.engine.inventory import list_adapters, list_models
from workers.engine.memory import DeviceMemory, evict_idle_adapters, free_caches
from workers.engine.meter import Meter
from workers.engine.outbox import Outbox
from workers.engine.pipes import Adopt, DeviceCommand, MakeResident, MakeRoom, Pipes
from workers.engine.shelf import Parked, Shelf, ShelvedModel
from workers.engine.warm_up import warm_up
from workers.engine.works import WaitingRoom
from workers.models.loaded import LoadedModel
from workers.oom import is_device_lost, is_out_of_memory
from workers.packing.artifact import PreparedAdapter
from workers.packing.host import HostTier
from workers.weights import weight_bytes

log = structlog.get_logger("worker.residents")


class Residents:
    """Runs on the device's thread, between two batches. ``cache_bytes`` tells the memory of texts in the making."""

    def __init__(
        self,
        room: WaitingRoom,
        shelf: Shelf,
        host: HostTier,
        pipes: Pipes,
        answers: Answers,
        outbox: Outbox,
        meter: Meter,
        *,
        model_limit_bytes: int,
        device: str = "cpu",
        batch_tokens: int = 16_384,
        batch_s: float = 0.25,
        cache_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        self._room = room
        self._shelf = shelf
        self._host = host
        self._pipes = pipes
        self._answers = answers
        self._outbox = outbox
        self._meter = meter
        self._memory = DeviceMemory(device)
        self._budget = Budget(
            room, shelf, pipes, meter, self._memory, limit_bytes=model_limit_bytes, cache_bytes=cache_bytes
        )
        self._batch_tokens, self._batch_s = batch_tokens, batch_s
        self.models: list[ResidentModel] = []
        self.adapters: list[ResidentAdapter] = []

    def obey(self, command: DeviceCommand) -> None:
        """Carry out one command of another stage or of the sidecar."""
        match command:
            case MakeRoom():
                self._budget.ask(command)
            case Adopt(shelved=shelved):
                self._adopt(shelved)
            case MakeResident(model=model, adapter=adapter):
                self._outbox.post(
                    Ensured(adapter.digest, self.load(model, adapter, in_use=self._room.adapters_in_use()))
                )
            case Evict(digest=digest):
                self._outbox.post(Ensured(digest, self._evict(digest)))
            case Pin(digest=digest, pinned=pinned):
                self._outbox.post(Ensured(digest, self._pin(digest, pinned=pinned)))
        self._answers.offer_room()
        self.snapshot()

    def tend(self) -> None:
        """What has to go on between batches: a load that waits for room, and the budget."""
        self._budget.tend()
        self._budget.trim()

    def load(
        self, model: LoadedModel, adapter: PreparedAdapter | None, *, in_use: Collection[str] = ()
    ) -> ErrorInfo | None:
        """Put an adapter into a slot; returns why it could not be."""
        if adapter is None:
            return ErrorInfo(Code.INTERNAL, "The adapter's weights were gone when its batch was formed; retry.")
        for last in (False, True):
            try:
                evicted = model.load_adapter(adapter.digest, adapter, in_use=in_use)
            except ShoalError as error:
                return error.info
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if last:
                    return ErrorInfo(Code.OUT_OF_MEMORY, f"No memory for adapter {adapter.digest[:12]}.")
            else:
                self._meter.loaded()
                self._meter.evicted(self._displaced(model, evicted, adapter.digest))
                return None
            self._meter.evicted(evict_idle_adapters(model, self._host, in_use))
        return None

    def snapshot(self) -> None:
        """Note what is resident, for the sampler's thread."""
        self.models, self.adapters = list_models(self._shelf), list_adapters(self._shelf, self._host)

    @property
    def reserved_bytes(self) -> int:
        """Weights, slots, caches, and headroom for the largest batch."""
        return self._budget.reserved_bytes

    @property
    def budget_bytes(self) -> int:
        """What may be reserved."""
        return self._budget.limit_bytes

    def drop_unlisted(self) -> None:
        """Free models that left the pool and whose jobs are done."""
        for model_id in set(self._shelf.unlisted()) - self._room.models_in_use():
            self._budget.evict(model_id, "The pool does not serve it any more.")

    def _adopt(self, shelved: ShelvedModel) -> None:
        record = shelved.model.record
        refused = self._first_passes(shelved)
        if refused is not None:
            free_caches()
            self._refuse(self._shelf.fail(record.id, refused), refused)
            return
        # what it takes, not what its files made expect
        shelved.model.size_bytes = weight_bytes(shelved.model.kind.module)
        shelved.loaded_at = time.monotonic()
        parked = self._shelf.add(shelved)
        self._meter.loaded()
        for order in parked.orders:
            if order.digest == record.digest:
                self._outbox.post(Ensured(order.digest))
            else:
                self._pipes.resume(order)
        for work in parked.works:
            self._pipes.resume(work)
        cost = shelved.cost.cost
        log.info(
            "model ready",
            model=record.id,
            size_bytes=shelved.model.size_bytes,
            activation_bytes=shelved.activation_bytes,
            pass_ms=round(cost.fixed_s * 1e3, 2),
            token_us=round(cost.token_s * 1e6, 1),
        )

    def _first_passes(self, shelved: ShelvedModel) -> ErrorInfo | None:
        """Run the first passes; returns why the model cannot be served. The models beside it go on."""
        for last in (False, True):
            try:
                warm_up(shelved, self._memory, batch_tokens=self._batch_tokens, batch_s=self._batch_s)
            except Exception as error:
                if is_device_lost(error):
                    raise
                log.warning("first pass failed", model=shelved.model.record.id, reason=repr(error)[:200])
                short = is_out_of_memory(error)
                if last or not short:
                    code = Code.OUT_OF_MEMORY if short else Code.MODEL_UNLOADABLE
                    return ErrorInfo(code, f"The model {shelved.model.record.id} failed its first pass: {error!r}.")
            else:
                return None
            for other in self._shelf.loaded():
                self._meter.evicted(evict_idle_adapters(other.model, self._host, self._room.adapters_in_use()))
        return None

    def _refuse(self, parked: Parked, info: ErrorInfo) -> None:
        for work in parked.works:
            self._answers.fail(work, info)
        for order in parked.orders:
            self._outbox.post(Ensured(order.digest, info))

    def _displaced(self, model: LoadedModel, digests: Sequence[str], newcomer: str) -> list[Eviction]:
        name = self._shelf.version_of(newcomer) or newcomer[:12]
        table = model.adapters.table
        reason = (
            f"Its slot went to {name}: {len(table)} of {table.slots} slots of {model.record.id} were taken, and of "
            "those without waiting jobs it was used least of late."
        )
        return [self._left(digest, reason) for digest in digests]

    def _left(self, digest: str, reason: str) -> Eviction:
        return Eviction("adapter", digest, reason, time.time(), name=self._shelf.version_of(digest))

    def _evict(self, digest: str) -> ErrorInfo | None:
        shelved = self._shelf.get(digest)
        if shelved is not None:
            if shelved.pinned or shelved.model.record.id in self._room.models_in_use():
                return _in_use(digest, pinned=shelved.pinned)
            self._budget.evict(shelved.model.record.id, "An operator evicted it.")
            return None
        if digest in self._room.adapters_in_use():
            return _in_use(digest, pinned=False)
        for one in self._shelf.loaded():
            resident = one.model.adapters.table.get(digest)
            if resident is not None and resident.pinned:
                return _in_use(digest, pinned=True)
            if resident is not None:
                one.model.unload_adapter(digest)
                self._meter.evicted([self._left(digest, "An operator evicted it.")])
        self._host.discard(digest)
        return None

    def _pin(self, digest: str, *, pinned: bool) -> ErrorInfo | None:
        shelved = self._shelf.get(digest)
        if shelved is not None:
            shelved.operator_pin = pinned
            return None
        found = [one.model.adapters.table.get(digest) for one in self._shelf.loaded()]
        residents = [resident for resident in found if resident is not None]
        if not residents:
            return ErrorInfo(Code.NOT_FOUND, f"{digest[:12]} is not resident on this worker.", hint="Load it first.")
        for resident in residents:
            resident.pinned = pinned
        return None


def _in_use(digest: str, *, pinned: bool) -> ErrorInfo:
    if pinned:
        return ErrorInfo(Code.IN_USE, f"{digest[:12]} is pinned.", hint="Unpin it first.")
    return ErrorInfo(Code.IN_USE, f"{digest[:12]} is in use by a waiting or running job.", hint="Retry in a moment.")
