"""Which base models other machines of the pool serve, from their presence."""

from __future__ import annotations

import time

from nats.aio.msg import Msg

from fabric.connection import Connection
from wire import codec
from wire.jobs import Presence
from wire.subjects import PRESENCE_ALL

# Presence comes once a second.
STALE_S = 3.0


class Neighbours:
    """When each model was last offered by another machine; times are monotonic seconds."""

    def __init__(self, machine: str, pool: str) -> None:
        self._machine = machine
        self._pool = pool
        self._seen: dict[str, float] = {}

    async def start(self, connection: Connection) -> None:
        """Listen to the other sidecars."""
        await connection.subscribe(PRESENCE_ALL, cb=self._take)

    def serve(self, model: str) -> bool:
        """Whether another machine said lately that it serves ``model``."""
        return time.monotonic() - self._seen.get(model, -STALE_S) < STALE_S

    async def _take(self, msg: Msg) -> None:
        try:
            presence = codec.decode(msg.data, Presence)
        except codec.WireDecodeError:
            # A sidecar of another release: it is taken for absent, which costs its help and nothing else.
            return
        if presence.machine == self._machine or presence.pool != self._pool:
            return
        now = time.monotonic()
        self._seen = {model: at for model, at in self._seen.items() if now - at < STALE_S}
        self._seen.update(dict.fromkeys(presence.models, now))
