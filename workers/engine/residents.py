"""What is resident on the device: adopting and evicting models, loading, pinning and evicting adapters."""

from __future__ import annotations

import time
from collections.abc import Collection

import structlog

from wire.errors import Code, ErrorInfo, ShoalError
from wire.frames import Ensured, Evict, Pin
from wire.jobs import EmbeddingInputs
from wire.telemetry import ResidentAdapter, ResidentModel
from workers.engine.answers import Answers
from workers.engine.memory import evict_idle_adapters, free_caches
from workers.engine.meter import Meter
from workers.engine.outbox import Outbox
from workers.engine.pipes import Adopt, DeviceCommand, MakeResident, MakeRoom, Pipes
from workers.engine.shelf import Shelf, ShelvedModel
from workers.engine.works import WaitingRoom
from workers.models.loaded import LoadedModel
from workers.oom import is_device_lost, is_out_of_memory
from workers.packing.artifact import PreparedAdapter
from workers.packing.host import HostTier
from workers.residency import choose_evictions

log = structlog.get_logger("worker.residents")
_WARM_UP = ((8, 1), (8, 1), (64, 4), (8, 1), (16, 32))
"""(tokens, rows) of the first passes: the first sets up the device's thread pools, the others give the cost
model a start."""


class Residents:
    """Runs on the device's thread, between two batches."""

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
    ) -> None:
        self._room = room
        self._shelf = shelf
        self._host = host
        self._pipes = pipes
        self._answers = answers
        self._outbox = outbox
        self._meter = meter
        self._model_limit_bytes = model_limit_bytes
        self.models: list[ResidentModel] = []
        self.adapters: list[ResidentAdapter] = []

    def obey(self, command: DeviceCommand) -> None:
        """Carry out one command of another stage or of the sidecar."""
        match command:
            case MakeRoom(size_bytes=size_bytes, reply=reply):
                reply.put(self._make_room(size_bytes))
            case Adopt(shelved=shelved):
                self._adopt(shelved)
            case MakeResident(model=model, adapter=adapter):
                self._outbox.post(Ensured(adapter.digest, self.load(model, adapter)))
            case Evict(digest=digest):
                self._outbox.post(Ensured(digest, self._evict(digest)))
            case Pin(digest=digest, pinned=pinned):
                self._outbox.post(Ensured(digest, self._pin(digest, pinned=pinned)))
        self._answers.offer_room()
        self.snapshot()

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
                self._meter.loaded(evictions=len(evicted))
                return None
            self._meter.evicted(evict_idle_adapters(model, self._host, in_use))
        return None

    def snapshot(self) -> None:
        """Note what is resident, for the sampler's thread."""
        models: list[ResidentModel] = []
        adapters: list[ResidentAdapter] = []
        for one in self._shelf.loaded():
            table, record = one.model.adapters.table, one.model.record
            models.append(
                ResidentModel(
                    id=record.id,
                    digest=record.digest,
                    size_bytes=one.model.size_bytes,
                    pinned=one.pinned,
                    slots=table.slots,
                    slots_used=len(table),
                )
            )
            adapters += [
                ResidentAdapter(
                    digest=held.digest,
                    model=record.id,
                    size_bytes=held.size_bytes,
                    slot=held.slot,
                    pinned=held.pinned,
                    hits=held.hits,
                    loaded=held.loaded,
                    last_used=held.last_used,
                )
                for held in table.residents()
            ]
        self.models, self.adapters = models, adapters

    @property
    def reserved_bytes(self) -> int:
        """Bytes of base models and of the slots of their adapters."""
        return sum(one.model.size_bytes + one.model.adapters.size_bytes for one in self._shelf.loaded())

    def drop_unlisted(self) -> None:
        """Free models that left the pool and whose jobs are done."""
        for model_id in set(self._shelf.unlisted()) - self._room.models_in_use():
            self._shelf.remove(model_id)
            self._meter.evicted()
            log.info("base model dropped, the pool does not serve it any more", model=model_id)

    def _adopt(self, shelved: ShelvedModel) -> None:
        model_id = shelved.model.record.id
        refused = self._warm_up(shelved)
        if refused is not None:
            free_caches()
            for work in self._shelf.fail(model_id, refused):
                self._answers.fail(work, refused)
            return
        for work in self._shelf.add(shelved):
            self._pipes.to_prepare(work)
        cost = shelved.cost.cost
        log.info(
            "base model ready",
            model=model_id,
            pass_ms=round(cost.fixed_s * 1e3, 2),
            token_us=round(cost.token_s * 1e6, 1),
        )

    def _warm_up(self, shelved: ShelvedModel) -> ErrorInfo | None:
        """Run the first passes; returns why the model cannot be served. The models beside it go on."""
        for last in (False, True):
            try:
                self._first_passes(shelved)
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

    def _first_passes(self, shelved: ShelvedModel) -> None:
        model = shelved.model
        row = model.kind.prepare(EmbeddingInputs(texts=["a"])).rows[0]
        for number, (tokens, rows) in enumerate(_WARM_UP):
            length = min(tokens, model.kind.max_tokens)
            ids = (row * length)[:length]
            start = time.perf_counter()
            model.forward([ids] * rows, [None] * rows)
            if number:
                shelved.cost.update(tokens=length * rows, adapters=0, seconds=time.perf_counter() - start)

    def _make_room(self, size_bytes: int) -> ErrorInfo | None:
        held = self._shelf.held(self._room.models_in_use())
        victims = choose_evictions(held, needed_bytes=size_bytes, limit_bytes=self._model_limit_bytes)
        if victims is None:
            kept = sum(model.size_bytes for model in held if model.kept)
            return ErrorInfo(
                code=Code.MODEL_UNLOADABLE,
                message=f"The model needs {size_bytes} bytes; the device allows {self._model_limit_bytes} bytes for "
                f"models, of which {kept} are pinned or in use.",
                hint="Unpin a base model, raise SHOAL_MODEL_BYTES, or serve it from another pool.",
            )
        for victim in victims:
            self._shelf.remove(victim)
            self._meter.evicted()
            log.info("base model evicted", model=victim)
        return None

    def _evict(self, digest: str) -> ErrorInfo | None:
        shelved = self._shelf.get(digest)
        if shelved is not None:
            if shelved.pinned or shelved.model.record.id in self._room.models_in_use():
                return _in_use(digest, pinned=shelved.pinned)
            self._shelf.remove(shelved.model.record.id)
            self._meter.evicted()
            return None
        if digest in self._room.adapters_in_use():
            return _in_use(digest, pinned=False)
        for one in self._shelf.loaded():
            resident = one.model.adapters.table.get(digest)
            if resident is not None and resident.pinned:
                return _in_use(digest, pinned=True)
            if resident is not None:
                one.model.unload_adapter(digest)
                self._meter.evicted()
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
