"""Which (pool, model) has live workers, from the sidecars' one-second messages."""

from __future__ import annotations

import time

from nats.aio.msg import Msg

from fabric.connection import Connection
from wire import codec
from wire.errors import Code, ShoalError
from wire.jobs import Presence, Task
from wire.registry import ModelRecord
from wire.subjects import PRESENCE_ALL

# Three messages' time: after a start or a reconnect silence says nothing before.
LISTEN_S = 3.0
KEPT_MODELS = 10_000
# A machine that missed so many messages is not counted: lanes are for those that are there.
MACHINE_STALE_S = 5.0


class PresenceBoard:
    """When each (pool, model) was last offered by a sidecar; times are monotonic seconds."""

    def __init__(self, stale_s: float) -> None:
        self._stale_s = stale_s
        self._seen: dict[tuple[str, str], float] = {}
        self._versions: dict[tuple[str, Task], float] = {}
        self._machines: dict[str, dict[str, float]] = {}
        self._listening_since = time.monotonic()

    async def start(self, connection: Connection) -> None:
        """Listen to all sidecars."""
        await connection.subscribe(PRESENCE_ALL, cb=self._take)
        connection.on_reconnect(self._restart)
        self._listening_since = time.monotonic()

    def check(self, model: ModelRecord) -> None:
        """Raise ``ShoalError(NO_WORKER)`` when no worker offered ``model`` for too long."""
        now = time.monotonic()
        seen = self._last_seen(model)
        # What was said while the connection was away is lost: a model seen before has all its time after it again.
        if seen is not None and now - max(seen, self._listening_since) <= self._stale_s:
            return
        listening_s = now - self._listening_since
        if listening_s < LISTEN_S:
            return
        if seen is None:
            since = f"none was seen in the {listening_s:.0f} s since this gateway listens"
        else:
            since = f"the last was seen {now - seen:.0f} s ago"
        raise ShoalError(
            Code.NO_WORKER,
            f"No worker serves {model.id} in pool {model.pool}: {since}.",
            param="model",
            hint="The fleet page shows which workers run; try again once one is up.",
            detail={"retry_after_s": 5},
        )

    def machines(self, pool: str) -> int:
        """How many machines serve in ``pool``."""
        return len(self._machines.get(pool, ()))

    def note(self, presence: Presence) -> None:
        """Take over one sidecar's message."""
        now = time.monotonic()
        # Told about once a second by each machine: those that ceased are dropped here, not at each request.
        machines = self._machines.get(presence.pool, {}) | ({presence.machine: now} if presence.workers else {})
        self._machines[presence.pool] = {name: at for name, at in machines.items() if now - at <= MACHINE_STALE_S}
        for model in presence.models:
            self._seen[presence.pool, model] = now
        for task in presence.version_tasks:
            self._versions[presence.pool, task] = now
        if len(self._seen) > KEPT_MODELS:
            self._seen = {key: at for key, at in self._seen.items() if now - at <= self._stale_s}

    def _last_seen(self, model: ModelRecord) -> float | None:
        named = self._seen.get((model.pool, model.id))
        if not model.is_version:
            return named
        # Versions with weights of their own are not named one by one.
        seen = (self._versions.get((model.pool, task)) for task in model.tasks)
        return max((at for at in (named, *seen) if at is not None), default=None)

    async def _take(self, msg: Msg) -> None:
        try:
            self.note(codec.decode(msg.data, Presence))
        except codec.WireDecodeError:
            # A sidecar of another release; its silence shows on the fleet page.
            return

    async def _restart(self) -> None:
        self._listening_since = time.monotonic()
