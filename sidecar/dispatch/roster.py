"""What the workers of this machine can do together, worked out when it changed and not for every job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from sidecar.dispatch.assignment import gives_signs
from sidecar.models import PoolModels
from sidecar.sockets.connection import WorkerConnection
from wire.jobs import Task


class Roster:
    """Unions over the undrained workers. ``now`` is the loop's clock."""

    def __init__(self, workers: Mapping[str, WorkerConnection], models: PoolModels, now: Callable[[], float]) -> None:
        self._workers = workers
        self._models = models
        self._now = now
        self._servable: frozenset[str] | None = None
        self._resident: frozenset[str] | None = None
        self._until = 0.0

    def changed(self) -> None:
        """A worker came, went, was drained, or holds other models; or the models of the pool changed."""
        self._servable = self._resident = None

    def learn(self, connection: WorkerConnection) -> None:
        """Work out which of the pool's models ``connection`` can run and holds."""
        tasks = set(connection.hello.tasks)
        records = self._models.records
        capable = frozenset(one.id for one in records if not tasks.isdisjoint(one.tasks))
        held = connection.models
        holds = frozenset(one.id for one in records if one.id in held or one.digest in held) & capable
        if capable != connection.capable or holds != connection.holds:
            connection.capable, connection.holds = capable, holds
            self.changed()

    @property
    def taking(self) -> list[WorkerConnection]:
        """Workers that are not draining."""
        return [one for one in self._workers.values() if one.open and not one.draining]

    def servable(self) -> frozenset[str]:
        """Models that a live, undrained worker serves or can load."""
        now = self._now()
        if self._servable is None or now >= self._until:
            taking = self.taking
            self._until = min((until for one in taking for until in one.barred.values()), default=float("inf"))
            self._servable = _union(one.servable(now) for one in taking)
            self._resident = _union(one.resident(now) for one in taking)
        return self._servable

    def askable(self) -> frozenset[str]:
        """Models to ask the queue for: also a version that no worker here could load a moment ago, since nobody is told
        so by presence, and its requests shall learn why at once."""
        barred = {model for one in self.taking for model in one.barred}
        if not barred:
            return self.servable()
        return self.servable() | {one for one in barred if (record := self._models.get(one)) and record.is_version}

    def resident(self) -> frozenset[str]:
        """Models that a live, undrained worker holds."""
        servable = self.servable()
        return servable if self._resident is None else self._resident

    def answering(self) -> frozenset[str]:
        """Those of ``servable`` whose workers give signs of life."""
        taking = self.taking
        if all(gives_signs(one) for one in taking):
            return self.servable()
        return _union(one.servable(self._now()) for one in taking if gives_signs(one))

    def offered(self) -> tuple[frozenset[str], frozenset[Task]]:
        """What presence says: base models by name, versions with weights of their own by task."""
        tasks = frozenset(Task(task) for one in self.taking for task in one.hello.tasks if task in _TASKS)
        bases = (one for one in self._models.records if not one.is_version)
        servable = self.servable()
        return frozenset(one.id for one in bases if one.id in servable), tasks


_TASKS = frozenset(task.value for task in Task)


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    found = list(sets)
    return found[0] if len(found) == 1 else frozenset().union(*found)
