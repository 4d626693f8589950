"""Which models other machines of the pool serve, from their presence."""

from __future__ import annotations

import time
from dataclasses import dataclass

from nats.aio.msg import Msg

from fabric.connection import Connection
from sidecar.models import PoolModels
from wire import codec
from wire.jobs import Presence, Task
from wire.registry import ModelRecord
from wire.subjects import PRESENCE_ALL

# Presence comes once a second.
STALE_S = 3.0


@dataclass(frozen=True, slots=True)
class _Seen:
    at: float
    models: frozenset[str]
    version_tasks: frozenset[Task]

    def offers(self, model: str, record: ModelRecord | None) -> bool:
        if record is None or not record.is_version:
            return model in self.models
        return not self.version_tasks.isdisjoint(record.tasks)


class Neighbours:
    """What each other machine said last; times are monotonic seconds."""

    def __init__(self, machine: str, models: PoolModels) -> None:
        self._machine = machine
        self._models = models
        self._seen: dict[str, _Seen] = {}

    async def start(self, connection: Connection) -> None:
        """Listen to the other sidecars."""
        await connection.subscribe(PRESENCE_ALL, cb=self._take)

    def serve(self, model: str) -> bool:
        """Whether another machine said lately that it serves ``model``."""
        return bool(self.machines(model))

    def machines(self, model: str) -> list[str]:
        """Other machines that said lately that they serve ``model``."""
        since = time.monotonic() - STALE_S
        record = self._models.get(model)
        return [name for name, one in self._seen.items() if one.at > since and one.offers(model, record)]

    async def _take(self, msg: Msg) -> None:
        try:
            presence = codec.decode(msg.data, Presence)
        except codec.WireDecodeError:
            # A sidecar of another release: it is taken for absent, which costs its help and nothing else.
            return
        if presence.machine == self._machine or presence.pool != self._models.pool:
            return
        now = time.monotonic()
        self._seen = {name: one for name, one in self._seen.items() if now - one.at < STALE_S}
        self._seen[presence.machine] = _Seen(now, frozenset(presence.models), frozenset(presence.version_tasks))
