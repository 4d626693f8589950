"""The models of this machine's pool: base models, and versions with weights of their own."""

from __future__ import annotations

from collections.abc import Iterable

from wire.jobs import Job
from wire.registry import ModelRecord


class PoolModels:
    """Records by id. ``generation`` counts changes, for whoever keeps something derived from the records."""

    def __init__(self, pool: str) -> None:
        self.pool = pool
        self.generation = 0
        self._records: dict[str, ModelRecord] = {}

    def set(self, records: Iterable[ModelRecord]) -> bool:
        """Take over the records of the pool among ``records``; whether anything changed."""
        found = {one.id: one for one in records if one.pool == self.pool}
        if found == self._records:
            return False
        self._records = dict(sorted(found.items()))
        self.generation += 1
        return True

    def __contains__(self, model: str) -> bool:
        return model in self._records

    def get(self, model: str) -> ModelRecord | None:
        """The record of ``model``, if it is registered."""
        return self._records.get(model)

    @property
    def records(self) -> list[ModelRecord]:
        """All records, by id."""
        return list(self._records.values())

    @property
    def ids(self) -> frozenset[str]:
        """Ids of all records."""
        return frozenset(self._records)

    def artifact_of(self, job: Job) -> str | None:
        """The digest of the file a worker needs for ``job``: of its adapter, or of the version that is the model."""
        if job.adapter_digest is not None:
            return job.adapter_digest
        record = self._records.get(job.model)
        return None if record is None else record.artifact
