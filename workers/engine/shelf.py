"""Base models of the pool: known, loading, loaded, failed. Jobs of a model that loads wait here."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from wire.errors import Code, ErrorInfo, ShoalError
from wire.registry import ModelRecord
from workers.batching.cost import CostModel
from workers.engine.works import Work
from workers.models.loaded import LoadedModel
from workers.residency import HeldModel

RETRY_AFTER_S = 30.0
UNLISTED_KEPT_S = 30.0
"""A model that left the pool stays this long: a sidecar that starts anew may not know the whole pool at first."""


@dataclass(slots=True, eq=False)
class ShelvedModel:
    """A loaded model with what the engine learned of it. ``last_batch`` and ``unlisted_at`` are monotonic seconds.

    ``operator_pin`` is what a command said last; without one the registry's ``record_pin`` holds.
    """

    model: LoadedModel
    reload_s: float
    record_pin: bool
    operator_pin: bool | None = None
    unlisted_at: float | None = None
    cost: CostModel = field(default_factory=CostModel)
    last_batch: float = field(default_factory=time.monotonic)

    @property
    def pinned(self) -> bool:
        """Whether the model stays loaded while idle."""
        return self.record_pin if self.operator_pin is None else self.operator_pin


@dataclass(slots=True)
class _Failure:
    info: ErrorInfo
    at: float


class Shelf:
    """Safe for several threads; only the device's thread adds and removes loaded models."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[str, ModelRecord] = {}
        self._loaded: dict[str, ShelvedModel] = {}
        self._parked: dict[str, list[Work]] = {}
        self._failed: dict[str, _Failure] = {}
        self._starting: set[str] = set()
        self._settled = False

    def set_records(self, records: Iterable[ModelRecord]) -> list[ModelRecord]:
        """Take the pool's models; returns pinned ones that are neither loaded nor loading, now marked as loading."""
        with self._lock:
            self._records = {record.id: record for record in records}
            for model_id, held in self._loaded.items():
                self._note_listing(model_id, held)
            wanted = [
                record
                for model_id, record in self._records.items()
                if record.pinned and model_id not in self._parked and not self._holds(record)
            ]
            for record in wanted:
                self._parked[record.id] = []
                self._starting.add(record.id)
                self._failed.pop(record.id, None)
            self._note_settled()
            return wanted

    def find(self, work: Work) -> ShelvedModel | ModelRecord | None:
        """The loaded model of a job; or the record to load first; or ``None`` when the job waits for a load already.

        Raises ``ShoalError(MODEL_UNLOADABLE)`` when the model is unknown or failed a moment ago.
        """
        job = work.job
        with self._lock:
            record = self._records.get(job.model)
            if record is None:
                raise ShoalError(Code.MODEL_UNLOADABLE, f"The model {job.model} is not served by this worker's pool.")
            if job.model_digest and record.digest and job.model_digest != record.digest:
                raise ShoalError(
                    Code.MODEL_UNLOADABLE,
                    f"The job asks for {job.model} with digest {job.model_digest[:12]}, registered is "
                    f"{record.digest[:12]}.",
                    hint="The base model was registered again a moment ago; retry.",
                )
            if self._holds(record):
                return self._loaded[job.model]
            failure = self._failed.get(job.model)
            if failure is not None and time.monotonic() - failure.at < RETRY_AFTER_S:
                raise ShoalError(failure.info.code, failure.info.message, hint=failure.info.hint)
            if job.model in self._parked:
                self._parked[job.model].append(work)
                return None
            self._parked[job.model] = [work]
            return record

    def add(self, shelved: ShelvedModel) -> list[Work]:
        """A model is loaded; returns the jobs that waited for it."""
        with self._lock:
            model_id = shelved.model.record.id
            self._note_listing(model_id, shelved)
            self._loaded[model_id] = shelved
            self._failed.pop(model_id, None)
            self._starting.discard(model_id)
            self._note_settled()
            return self._parked.pop(model_id, [])

    def fail(self, model_id: str, info: ErrorInfo) -> list[Work]:
        """A model could not be loaded; returns the jobs that waited for it."""
        with self._lock:
            self._failed[model_id] = _Failure(info, time.monotonic())
            self._starting.discard(model_id)
            self._note_settled()
            return self._parked.pop(model_id, [])

    def remove(self, model_id: str) -> None:
        """Forget a loaded model."""
        with self._lock:
            self._loaded.pop(model_id, None)

    def loaded(self) -> list[ShelvedModel]:
        """Loaded models."""
        with self._lock:
            return list(self._loaded.values())

    def get(self, name: str) -> ShelvedModel | None:
        """The loaded model with this id or weight digest."""
        return next((one for one in self.loaded() if name in (one.model.record.id, one.model.record.digest)), None)

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

    def held(self, in_use: set[str]) -> list[HeldModel]:
        """Loaded models as the eviction policy sees them."""
        now = time.monotonic()
        return [
            HeldModel(
                id=one.model.record.id,
                size_bytes=one.model.size_bytes + one.model.adapters.size_bytes,
                idle_s=now - one.last_batch,
                reload_s=one.reload_s,
                kept=one.pinned or one.model.record.id in in_use,
            )
            for one in self.loaded()
        ]

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
