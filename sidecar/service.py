"""The sidecar as one task group: a stage that dies ends the process, and the supervisor starts it anew."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import structlog
from nats.aio.msg import Msg
from prometheus_client import start_http_server

from fabric.connection import Connection, connect
from fabric.mirror import Mirror
from fabric.topology import ensure_buckets
from sidecar.artifacts.cache import ArtifactCache
from sidecar.artifacts.download import ArtifactSource
from sidecar.broker.dead import Undertaker
from sidecar.broker.link import Link
from sidecar.broker.outbox import Outbox
from sidecar.broker.puller import Appetite, Puller
from sidecar.broker.removed import RemovedModels
from sidecar.commands import Commands
from sidecar.dispatch.crew import Crew
from sidecar.dispatch.desk import Desk
from sidecar.dispatch.drained import DrainedWorkers
from sidecar.dispatch.intake import Intake
from sidecar.dispatch.upkeep import Upkeep
from sidecar.models import PoolModels
from sidecar.neighbours import Neighbours
from sidecar.queueing.lanes import home_lanes
from sidecar.settings import SidecarSettings
from sidecar.signs import Signs
from sidecar.sockets.listener import Listener
from wire import subjects
from wire.registry import ModelRecord
from wire.telemetry import WorkerSample

log = structlog.get_logger(__name__)

FLUSH_S = 2.0
MODELS_SETTLE_S = 0.01


class Sidecar:
    """All parts of one sidecar. ``run`` returns after ``stop`` was called and everything was handed back."""

    def __init__(self, settings: SidecarSettings) -> None:
        self.settings = settings
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Ask for an orderly end."""
        self._stop.set()

    async def run(self) -> None:
        """Serve until ``stop``. Raises whatever ended a stage."""
        settings = self.settings
        connection = await connect(settings.nats_url, name=f"sidecar {settings.machine}")
        stages: _Stages | None = None
        try:
            async with asyncio.TaskGroup() as group:
                stages = _Stages(settings, connection, group)
                await stages.start()
                await self._stop.wait()
                await stages.finish()
        finally:
            if stages is not None:
                await stages.close()
            await connection.close()


class _Stages:
    """Wiring: which part tells which."""

    def __init__(self, settings: SidecarSettings, connection: Connection, group: asyncio.TaskGroup) -> None:
        self._settings = settings
        self._connection = connection
        self._group = group
        self._running: set[asyncio.Task[None]] = set()
        source = ArtifactSource(settings.web_url, settings.machine_key.get_secret_value(), settings.download_timeout_s)
        self._cache = ArtifactCache(
            settings.cache_dir, settings.cache_bytes, source, failure_memory_s=settings.failure_memory_s
        )
        self._link = Link(connection, settings.queue)
        self._pool_models = models = PoolModels(settings.pool)
        self._models_changed = asyncio.Event()
        self._outbox = Outbox(self._link)
        self._desk = Desk(self._link, self._outbox, self._cache, settings.machine, self._spawn)
        self._signs = Signs(connection, settings.machine, settings.pool)
        self._neighbours = Neighbours(settings.machine, models)
        drained = DrainedWorkers(settings.socket.with_name(f"{settings.socket.name}.drained"))
        self._crew = Crew(
            self._desk, self._cache, self._room_changed, self._forward_sample, self._neighbours.serve, drained, models
        )
        removed = RemovedModels(settings.pool)
        self._puller = Puller(
            self._link,
            settings.pool,
            self._appetite,
            self._deliver,
            self._home_lanes,
            self._desk.jobs_of,
            removed,
            expires_s=settings.pull_expires_s,
            stall_s=settings.stall_s,
            max_ask_jobs=settings.max_ask_jobs,
        )
        self._intake = Intake(
            self._link,
            self._desk,
            models,
            removed,
            settings.machine,
            self._spawn,
            self._puller.average.add,
            self._crew.refusal,
        )
        self._upkeep = Upkeep(
            self._desk, self._crew, self._neighbours.serve, watchdog_s=settings.watchdog_s, orphan_s=settings.orphan_s
        )
        self._undertaker = Undertaker(self._link, settings.machine)
        self._listener = Listener(settings.socket, self._crew)
        self._models: Mirror[ModelRecord] = Mirror(connection, subjects.MODELS_BUCKET, ModelRecord)

    async def start(self) -> None:
        """Make the topology, follow the models, open the socket, start the stages."""
        settings, connection = self._settings, self._connection
        await asyncio.to_thread(self._cache.open)
        await self._link.verify()
        await ensure_buckets(self._link.js, settings.queue)
        if settings.metrics_port:
            start_http_server(settings.metrics_port, addr="127.0.0.1")
        self._models.on_change(self._model_changed)
        await self._models.start()
        await connection.subscribe(subjects.CANCEL_ALL, cb=self._cancel)
        await connection.subscribe(subjects.DEMAND_ALL, cb=self._demand)
        await self._neighbours.start(connection)
        await self._undertaker.start()
        await Commands(connection, settings.machine, self._crew, self._cache, self._spawn).start()
        connection.on_reconnect(self._after_reconnect)
        await self._listener.open()
        stages: list[Coroutine[Any, Any, None]] = [
            self._link.run(),
            self._link.run_measure(),
            self._outbox.run(),
            self._puller.run(),
            self._undertaker.run(),
            self._assign(),
            self._upkeep.run(),
            self._signs.run_telemetry(),
            self._signs.run_presence(self._crew.roster),
            self._follow_models(),
        ]
        for stage in stages:
            self._spawn(stage)
        log.info("sidecar ready", machine=settings.machine, pool=settings.pool, nats=settings.nats_url)

    async def finish(self) -> None:
        """Stop asking, hand back what has not started, let the rest end within the grace, hand back what is left."""
        log.info("stopping", held=len(self._desk.held), grace_s=self._settings.drain_s)
        self._intake.stopping = True
        await self._puller.stop()
        self._upkeep.hand_back_waiting("stopping")
        self._crew.drain_all()
        await self._signs.say_presence(frozenset(), frozenset(), 0)
        limit = time.monotonic() + self._settings.drain_s
        while self._desk.held and time.monotonic() < limit:  # noqa: ASYNC110 - short, and only at the end
            await asyncio.sleep(0.02)
        if self._desk.held:
            log.warning("grace is over, handing jobs back", jobs=len(self._desk.held))
        self._upkeep.hand_back_all()
        await self._outbox.wait_empty(FLUSH_S)
        if self._connection.is_connected:
            await self._connection.flush()
        for task in list(self._running):
            task.cancel()

    async def close(self) -> None:
        """Give back the socket, the mirror and the downloads, however the stages ended."""
        await self._listener.close()
        await self._models.stop()
        await self._cache.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._group.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _assign(self) -> None:
        """Stage: hands jobs over whenever jobs, room or workers changed."""
        while True:
            await self._desk.changed.wait()
            self._desk.changed.clear()
            self._crew.assign()
            self._puller.wake()

    def _appetite(self) -> Appetite:
        roster = self._crew.roster
        return Appetite(self._crew.rooms_tokens, self._desk.queue.ready_tokens, roster.resident(), roster.askable())

    def _home_lanes(self, model: str) -> frozenset[str]:
        return home_lanes(model, self._settings.machine, self._neighbours.machines(model))

    def _deliver(self, msg: Msg, stream: str) -> None:
        self._intake.deliver(msg, stream)

    def _room_changed(self) -> None:
        self._puller.wake()

    def _forward_sample(self, worker: str, sample: WorkerSample) -> None:
        refused = self._desk.breaker.refused(time.time())
        self._signs.sample(worker, sample, len(self._desk.queue), self._cache.bytes, refused)

    def _model_changed(self, name: str, record: ModelRecord | None) -> None:
        self._models_changed.set()

    async def _follow_models(self) -> None:
        """Stage: takes over changes of the registry, many at once when they come together."""
        while True:
            await self._models_changed.wait()
            await asyncio.sleep(MODELS_SETTLE_S)
            self._models_changed.clear()
            models = self._pool_models
            if not models.set(self._models.records.values()):
                continue
            log.info("models of the pool changed", pool=models.pool, models=len(models.ids),
                     base_models=[one.id for one in models.records if not one.is_version])  # fmt: skip
            self._crew.set_models()
            self._puller.set_models(models.ids)

    async def _cancel(self, msg: Msg) -> None:
        held = self._intake.cancel(msg.subject.partition(".")[2])
        if held is not None:
            self._crew.cancel(held)

    async def _demand(self, msg: Msg) -> None:
        pool, model = (subjects.decode_token(token) for token in msg.subject.split(".")[1:3])
        if pool == self._settings.pool:
            self._puller.hint(model)

    async def _after_reconnect(self) -> None:
        self._outbox.notice_reconnect()
        for held in self._desk.held.values():
            self._desk.say_again(held)
        self._puller.wake()
