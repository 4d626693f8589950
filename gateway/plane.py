"""Everything of the gateway that lives on NATS, brought up in the background so that the process answers at once."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import structlog

from fabric.connection import Connection, connect
from fabric.mirror import Mirror
from fabric.tasks import end_task
from gateway.demand import DemandHints
from gateway.keeper import QueueKeeper
from gateway.limits import Limits
from gateway.metrics import Metrics
from gateway.presence import PresenceBoard
from gateway.queue import WorkQueue
from gateway.settings import GatewaySettings
from gateway.usage import UsageMeter
from gateway.waiters import unavailable
from wire.registry import AdapterRecord, KeyRecord, ModelRecord
from wire.subjects import ADAPTERS_BUCKET, KEYS_BUCKET, MODELS_BUCKET

log = structlog.get_logger(__name__)

# Together with the cancellations' time below that after which ``end_task`` cancels again: what follows must still run.
FINISH_S = 0.2


@dataclass(slots=True)
class Plane:
    """The parts on one NATS connection."""

    connection: Connection
    models: Mirror[ModelRecord]
    adapters: Mirror[AdapterRecord]
    keys: Mirror[KeyRecord]
    presence: PresenceBoard
    demand: DemandHints
    queue: WorkQueue
    keeper: QueueKeeper
    _background: set[asyncio.Task[None]] = field(default_factory=set)

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Do ``work`` without anybody waiting for it; it must not raise."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def finish(self) -> None:
        """Give what runs in the background a moment to end."""
        if self._background:
            await asyncio.wait(self._background, timeout=FINISH_S)
        for task in list(self._background):
            task.cancel()

    def missing(self) -> list[str]:
        """Why requests cannot be served right now; empty when they can."""
        reasons = []
        if not self.connection.is_connected:
            reasons.append("not connected to NATS")
        elif not self.keeper.ready:
            reasons.append("the work queue's streams are not confirmed yet")
        reasons += [
            f"bucket {mirror.bucket} has not been read yet; the control plane makes it when it starts"
            for mirror in (self.models, self.adapters, self.keys)
            if not mirror.ready
        ]
        return reasons


@dataclass(slots=True)
class Gateway:
    """One gateway process: settings, counters, limits, and the plane once NATS has answered."""

    settings: GatewaySettings
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    metrics: Metrics = field(default_factory=Metrics)
    started: float = field(default_factory=time.monotonic)
    limits: Limits = field(init=False)
    usage: UsageMeter = field(default_factory=UsageMeter)
    _plane: Plane | None = None

    def __post_init__(self) -> None:
        self.limits = Limits(self.settings.max_in_flight, self.settings.max_in_flight_bytes)

    def missing(self) -> list[str]:
        """Why this gateway cannot serve right now; empty when it can."""
        if self._plane is None:
            waited_s = time.monotonic() - self.started
            return [f"NATS has not answered in the {waited_s:.0f} s since the start"]
        return self._plane.missing()

    def plane(self) -> Plane:
        """The plane. Raises ``ShoalError(QUEUE_UNAVAILABLE)`` until keys and names are known."""
        plane = self._plane
        if plane is None or not (plane.keys.ready and plane.models.ready and plane.adapters.ready):
            raise unavailable(f"This gateway is starting: {'; '.join(self.missing())}.")
        return plane

    async def run(self) -> None:
        """Bring the plane up and keep it. Raises ``TopologyConflict``; ends only by cancellation."""
        connection = await connect(self.settings.nats_url, name=f"gateway {self.id}")
        plane = self._build(connection)
        reporting = asyncio.create_task(self.usage.run(connection, self.id), name="usage")
        try:
            await plane.queue.start()
            await plane.presence.start(connection)
            plane.keys.on_change(self._forget_key)
            for mirror in (plane.models, plane.adapters, plane.keys):
                await mirror.start()
            self._plane = plane
            await plane.keeper.run()
        finally:
            await end_task(reporting)
            await plane.queue.stop()
            await self.usage.publish(connection, self.id)
            await plane.finish()
            for mirror in (plane.models, plane.adapters, plane.keys):
                await mirror.stop()
            await connection.close()

    def observe(self) -> None:
        """Bring the gauges up to date before they are read."""
        self.metrics.in_flight.set(self.limits.in_flight)
        plane = self._plane
        self.metrics.connected.set(plane is not None and plane.connection.is_connected)
        if plane is not None:
            for mirror in (plane.models, plane.adapters, plane.keys):
                self.metrics.mirror_records.labels(mirror.bucket).set(len(mirror.records))

    def _build(self, connection: Connection) -> Plane:
        queue = WorkQueue(
            connection,
            self.id,
            settings=self.settings.queue,
            publish_timeout_s=self.settings.publish_timeout_s,
            metrics=self.metrics,
        )
        return Plane(
            connection=connection,
            models=Mirror(connection, MODELS_BUCKET, ModelRecord),
            adapters=Mirror(connection, ADAPTERS_BUCKET, AdapterRecord),
            keys=Mirror(connection, KEYS_BUCKET, KeyRecord),
            presence=PresenceBoard(self.settings.no_worker_s),
            demand=DemandHints(connection),
            queue=queue,
            keeper=QueueKeeper(connection, queue, self.settings.queue, self.metrics),
        )

    def _forget_key(self, _: str, record: KeyRecord | None) -> None:
        # Counters of keys that no longer exist would pile up.
        if record is None and self._plane is not None:
            self.limits.keep({key.id for key in self._plane.keys.records.values()})
