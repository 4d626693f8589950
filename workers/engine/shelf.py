"""Models of the pool: known, loading, loaded, leaving, failed. Jobs of a model that loads wait here."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from wire.errors import Code, ErrorInfo, ShoalError
from wire.frames import Ensure
from wire.registry import ModelRecord
from workers.batching.cost import CostModel
from workers.engine.failures import Failures
from workers.engine.works import Work
from workers.models.loaded import LoadedModel
from workers.residency.eviction import HeldModel
from workers.residency.uses import HALF_LIFE_S, Uses

UNLISTED_KEPT_S = 30.0
"""A model that left the pool stays this long: a sidecar that starts anew may not know the whole pool at first."""
_STAY_FACTOR = 2.0
"""A model serves this many times as long as it took to load before another may take its room."""
_FIRST_BATCH_S = 2.0
"""Jobs that waited for a load have this long to reach their first batch."""
_VERSIONS_KEPT = 4096


@dataclass(slots=True, eq=False)
class ShelvedModel:
    """A loaded model with what the engine learned of it. ``last_batch``, ``loaded_at`` and ``unlisted_at`` are
    monotonic seconds. ``activation_bytes`` is what its largest batch is expected to take beside the weights.

    ``awaited``: jobs waited for its load. ``operator_pin`` is what a command said last; without one the registry's
    ``record_pin`` holds.
    """

    model: LoadedModel
    reload_s: float
    record_pin: bool
    operator_pin: bool | None = None
    unlisted_at: float | None = None
    activation_bytes: int = 0
    hits: int = 0
    awaited: bool = False
    cost: CostModel = field(default_factory=CostModel)
    last_batch: float = field(default_factory=time.monotonic)
    loaded_at: float = field(default_factory=time.monotonic)

    @property
    def pinned(self) -> bool:
        """Whether the model stays loaded while idle."""
        return self.record_pin if self.operator_pin is None else self.operator_pin

    @property
    def held_bytes(self) -> int:
        """Bytes of the weights and of all slots."""
        return self.model.size_bytes + self.model.adapters.size_bytes

    def is_fresh(self, now: float, *, busy: bool) -> bool:
        """Whether its load would be wasted if it left now: jobs that waited are on their way, or it just began."""
        began = self.last_batch > self.loaded_at
        age_s = now - self.loaded_at
        if not began:
            return self.awaited and age_s < _FIRST_BATCH_S
        return busy and age_s < _STAY_FACTOR * self.reload_s


@dataclass(slots=True)
class Parked:
    """What waits for a model: jobs, and orders to make it or an adapter of it resident."""

    works: list[Work] = field(default_factory=list)
    orders: list[Ensure] = field(default_factory=list)

    def all(self) -> list[Work | Ensure]:
        """Jobs and orders."""
        return [*self.works, *self.orders]

    @property
    def awaited(self) -> bool:
        """Whether anybody still wants the model."""
        return bool(self.orders) or any(not work.gone for work in self.works)


class Shelf:
    """Safe for several threads; only the device's thread adds and removes loaded models."""

    def __init__(self, *, half_life_s: float = HALF_LIFE_S) -> None:
        self._lock = threading.Lock()
        self._records: dict[str, ModelRecord] = {}
        self._loaded: dict[str, ShelvedModel] = {}
        self._parked: dict[str, Parked] = {}
        self._leaving: set[str] = set()
        self._failures = Failures()
        self._starting: set[str] = set()
        self._settled = False
        self._uses = Uses(half_life_s=half_life_s)
        self._versions: OrderedDict[str, str] = OrderedDict()

    def set_records(self, records: Iterable[ModelRecord]) -> list[ModelRecord]:
        """Take the pool's models; returns pinned ones that are neither loaded nor loading, now marked as loading."""
        with self._lock:
            self._records = {record.id: record for record in records}
            self._failures.keep_only(self._records)
            for model_id, held in self._loaded.items():
                self._note_listing(model_id, held)
            wanted = [
                record
                for model_id, record in self._records.items()
                if record.pinned and model_id not in self._parked and not self._holds(record)
            ]
            for record in wanted:
                self._parked[record.id] = Parked()
                self._starting.add(record.id)
                self._failures.forget(record.id)
            self._note_settled()
            return wanted

    def find(self, work: Work) -> ShelvedModel | ModelRecord | None:
        """The loaded model of a job; or the record to load first; or ``None`` when the job waits for a load already.

        Raises ``ShoalError``: MODEL_UNLOADABLE when the model is unknown, or the reason why it failed a moment ago.
        """
        job = work.job
        with self._lock:
            record = self._listed(job.model)
            if job.model_digest and record.digest and job.model_digest != record.digest:
                raise ShoalError(
                    Code.MODEL_UNLOADABLE,
                    f"The job asks for {job.model} with digest {job.model_digest[:12]}, registered is "
                    f"{record.digest[:12]}.",
                    hint="The base model was registered again a moment ago; retry.",
                )
            self._note_version(work)
            found = self._find_or_park(record, Parked(works=[work]))
            if isinstance(found, ShelvedModel):  # a job that waited comes by again
                found.hits += 1
                self._uses.add(job.model, now=time.monotonic())
            return found

    def request(self, order: Ensure) -> ShelvedModel | ModelRecord | None:
        """As :meth:`find`, for an order to make something resident before its first job."""
        with self._lock:
            return self._find_or_park(self._listed(order.model), Parked(orders=[order]))

    def awaited(self, record: ModelRecord) -> bool:
        """Whether a load that was asked for is still wanted: jobs may have been cancelled since."""
        with self._lock:
            parked = self._parked.get(record.id)
            return parked is not None and (record.pinned or parked.awaited)

    def artifact_path(self, record: ModelRecord) -> Path | None:
        """Where the sidecar put the file of a version, as the newest job or order that waits for it says. A base
        model has none: the files of its jobs are those of their adapters."""
        if record.artifact is None:
            return None
        with self._lock:
            parked = self._parked.get(record.id, Parked())
            paths = [work.artifact_path for work in parked.works if not work.gone and work.artifact_path is not None]
            paths += [order.path for order in parked.orders if order.digest == record.digest]
            return Path(paths[-1]) if paths else None

    def add(self, shelved: ShelvedModel) -> Parked:
        """A model is loaded; returns what waited for it."""
        with self._lock:
            model_id = shelved.model.record.id
            self._note_listing(model_id, shelved)
            self._loaded[model_id] = shelved
            self._leaving.discard(model_id)
            self._failures.forget(model_id)
            parked = self._unpark(model_id)
            shelved.awaited = parked.awaited
            return parked

    def fail(self, model_id: str, info: ErrorInfo) -> Parked:
        """A model could not be loaded; returns what waited for it."""
        with self._lock:
            record = self._records.get(model_id)
            self._failures.note(model_id, record.digest if record is not None else "", info)
            return self._unpark(model_id)

    def drop_load(self, model_id: str) -> Parked:
        """Nobody wants the model any more, and none was loaded; returns what waited for it."""
        with self._lock:
            return self._unpark(model_id)

    def remove(self, model_id: str) -> ModelRecord | None:
        """Forget a loaded model. Returns its record when jobs came while it was leaving: it has to be loaded anew."""
        with self._lock:
            self._loaded.pop(model_id, None)
            self._leaving.discard(model_id)
            return self._records.get(model_id) if model_id in self._parked else None

    def set_leaving(self, model_ids: Collection[str]) -> list[Work | Ensure]:
        """Loaded models that take no further jobs, so that their room becomes free; returns what waited for those
        that stay after all."""
        with self._lock:
            stay = self._leaving - set(model_ids)
            self._leaving = set(model_ids) & self._loaded.keys()
            freed = [self._parked.pop(model_id) for model_id in stay if model_id in self._parked]
            return [waiting for parked in freed for waiting in parked.all()]

    def loaded(self) -> list[ShelvedModel]:
        """Loaded models."""
        with self._lock:
            return list(self._loaded.values())

    def get(self, name: str) -> ShelvedModel | None:
        """The loaded model with this id or weight digest."""
        return next((one for one in self.loaded() if name in (one.model.record.id, one.model.record.digest)), None)

    def version_of(self, digest: str) -> str | None:
        """The name under which jobs asked for an adapter version."""
        with self._lock:
            return self._versions.get(digest)

    @property
    def settled(self) -> bool:
        """Whether the pinned models of the worker's start were loaded or failed; true ever after."""
        with self._lock:
            return self._settled

    def unlisted(self) -> list[str]:
        """Ids of loaded models that left the pool a while ago."""
        now = time.monotonic()
        return [
            one.model.record.id
            for one in self.loaded()
            if one.unlisted_at is not None and now - one.unlisted_at >= UNLISTED_KEPT_S
        ]

    def held(self, in_use: Collection[str]) -> list[HeldModel]:
        """Loaded models as the eviction policy sees them."""
        now = time.monotonic()
        return [
            HeldModel(
                id=one.model.record.id,
                size_bytes=one.held_bytes,
                uses=self._uses.rank(one.model.record.id),
                reload_s=one.reload_s,
                pinned=one.pinned,
                busy=one.model.record.id in in_use,
                fresh=one.is_fresh(now, busy=one.model.record.id in in_use),
            )
            for one in self.loaded()
        ]

    def uses_of(self, model_id: str) -> float:
        """Decayed count of the model's jobs."""
        return self._uses.count(model_id, now=time.monotonic())

    def _listed(self, model_id: str) -> ModelRecord:
        record = self._records.get(model_id)
        if record is None:
            raise ShoalError(Code.MODEL_UNLOADABLE, f"The model {model_id} is not served by this worker's pool.")
        return record

    def _find_or_park(self, record: ModelRecord, waiting: Parked) -> ShelvedModel | ModelRecord | None:
        held = self._holds(record)
        if held and record.id not in self._leaving:
            return self._loaded[record.id]
        self._failures.check(record.id, record.digest)
        parked = self._parked.get(record.id)
        if parked is None:
            self._parked[record.id] = waiting
            return None if held else record
        # cancelled jobs must not pile up behind a long load
        parked.works = [work for work in parked.works if not work.gone] + waiting.works
        parked.orders += waiting.orders
        return None

    def _unpark(self, model_id: str) -> Parked:
        self._starting.discard(model_id)
        self._note_settled()
        return self._parked.pop(model_id, Parked())

    def _note_version(self, work: Work) -> None:
        digest, version = work.job.adapter_digest, work.job.version
        if digest is not None and version is not None:
            self._versions[digest] = version
            self._versions.move_to_end(digest)
            while len(self._versions) > _VERSIONS_KEPT:
                self._versions.popitem(last=False)

    def _note_listing(self, model_id: str, held: ShelvedModel) -> None:
        record = self._records.get(model_id)
        held.record_pin = record is not None and record.pinned
        if record is not None:
            held.unlisted_at = None
        elif held.unlisted_at is None:
            held.unlisted_at = time.monotonic()

    def _note_settled(self) -> None:
        # for good: a model registered later must not take the credit for those that are served
        self._settled = self._settled or (bool(self._records) and not self._starting)

    def _holds(self, record: ModelRecord) -> bool:
        held = self._loaded.get(record.id)
        return held is not None and held.model.record.digest == record.digest
