"""The telemetry bridge: one TaskGroup that reads NATS and writes Redis, the database and the ``fleet`` group.

Nothing of serving waits for it. Each outside part (NATS, Redis, database) may be away for any time: the
loop that needs it logs once, backs off and goes on where it stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import structlog
from asgiref.sync import sync_to_async
from channels.layers import get_channel_layer
from django.db import close_old_connections
from nats.aio.msg import Msg
from redis.exceptions import RedisError

from fabric.connection import connect
from fleet.telemetry import keys
from fleet.telemetry.intake import Intake
from fleet.telemetry.outage import Outage
from fleet.telemetry.rollups import complete_minutes, roll_up
from fleet.telemetry.rows import save_rollups, save_workers
from fleet.telemetry.states import FORGET_AFTER_S, Update, WorkerState
from fleet.telemetry.usage_loop import SAVE_EVERY_S, UsageLoop
from fleet.telemetry.writer import LiveWriter
from wire import subjects
from wire.codec import WireDecodeError, decode, encode
from wire.jobs import Presence
from wire.telemetry import Telemetry
from wire.usage import Usage

GROUP = "fleet"
EVENT = "fleet.update"
FLUSH_EVERY_S = 1.0
ROWS_EVERY_S = 10.0
ROLLUPS_EVERY_S = 10.0
FORGET_EVERY_S = 300.0
SETTLED_AFTER_S = 5
SUBSCRIPTION_BYTES = 16 * 1024 * 1024

T = TypeVar("T")
log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Bridge:
    """``run`` ends only by cancellation or a defect. ``name`` tells several bridges apart."""

    nats_url: str
    redis_url: str
    name: str = field(default_factory=lambda: secrets.token_hex(6))
    intake: Intake = field(default_factory=Intake)
    rollups_every_s: float = ROLLUPS_EVERY_S
    usage_every_s: float = SAVE_EVERY_S
    _undecodable: int = 0
    # asgiref and nats-py swallow a cancellation that arrives at the wrong moment, so every loop asks too
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    usage: UsageLoop = field(init=False)

    def __post_init__(self) -> None:
        self.usage = UsageLoop(self._stop, _in_database, save_every_s=self.usage_every_s)

    async def run(self, stop: asyncio.Event) -> None:
        """Bridge until ``stop`` is set; the last changes are written before it returns."""
        writer = LiveWriter(self.redis_url)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._listen()),
                    group.create_task(self._flush_live(writer)),
                    group.create_task(self._save_workers()),
                    group.create_task(self._save_rollups(writer)),
                    group.create_task(self.usage.flush(writer)),
                    group.create_task(self.usage.save(writer)),
                ]
                await stop.wait()
                self._stop.set()
                for task in tasks:
                    task.cancel()
            with contextlib.suppress(RedisError, OSError):
                await self._flush_once(writer)
                await self.usage.flush_once(writer)
        finally:
            await writer.close()

    async def _listen(self) -> None:
        client = await connect(self.nats_url, name=f"telemetry-bridge {self.name}")
        try:
            for subject, take in (
                (subjects.TELEMETRY_ALL, self._on_telemetry),
                (subjects.PRESENCE_ALL, self._on_presence),
                (subjects.USAGE_ALL, self._on_usage),
            ):
                await client.subscribe(subject, cb=take, pending_bytes_limit=SUBSCRIPTION_BYTES)
            log.info("telemetry bridge listens", server=self.nats_url, bridge=self.name)
            # the client reconnects and subscribes again by itself
            await self._stop.wait()
        finally:
            await client.close()

    async def _on_telemetry(self, message: Msg) -> None:
        try:
            self.intake.add_telemetry(decode(message.data, Telemetry), received=time.time())
        except WireDecodeError as error:
            self._drop(message, error)

    async def _on_presence(self, message: Msg) -> None:
        try:
            self.intake.add_presence(decode(message.data, Presence), received=time.time())
        except WireDecodeError as error:
            self._drop(message, error)

    async def _on_usage(self, message: Msg) -> None:
        try:
            self.usage.intake.add(decode(message.data, Usage), received=time.time())
        except WireDecodeError as error:
            self._drop(message, error)

    def _drop(self, message: Msg, error: WireDecodeError) -> None:
        self._undecodable += 1
        if self._undecodable == 1:
            log.warning(
                "message dropped: it is not its subject's struct; further ones are dropped silently",
                subject=message.subject,
                error=str(error),
            )

    async def _flush_live(self, writer: LiveWriter) -> None:
        outage = Outage("Redis")
        next_forget = time.monotonic() + FORGET_EVERY_S
        while not self._stop.is_set():
            await asyncio.sleep(FLUSH_EVERY_S)
            try:
                await self._flush_once(writer)
                if time.monotonic() >= next_forget:
                    next_forget = time.monotonic() + FORGET_EVERY_S
                    self.intake.forget(time.time())
                    await writer.forget(time.time() - FORGET_AFTER_S)
            # a channel layer may raise whatever its client library raises; this is the loop's edge
            except Exception as error:
                await outage.wait(error)
            else:
                outage.over()

    async def _flush_once(self, writer: LiveWriter) -> None:
        now = time.time()
        pending = self.intake.pending_points()
        if pending or self.intake.machines:
            await writer.write(self.intake.current_states(), self.intake.machines.values(), pending)
            self.intake.mark_written(pending, before=int(now) - SETTLED_AFTER_S)
        if await writer.lead(self.name):
            await _send(Update(now, self.intake.take_changes(now)))

    async def _save_workers(self) -> None:
        outage = Outage("the database")
        saved: dict[str, tuple[str, float]] = {}
        while not self._stop.is_set():
            await asyncio.sleep(FLUSH_EVERY_S)
            due = [state for state in self.intake.current_states() if _row_due(state, saved.get(state.key))]
            if not due:
                continue
            try:
                await _in_database(partial(save_workers, due))
            # any database driver, any reason; this is the loop's edge
            except Exception as error:
                await outage.wait(error)
                continue
            outage.over()
            saved |= {state.key: (state.state, state.received) for state in due}

    async def _save_rollups(self, writer: LiveWriter) -> None:
        outage = Outage("roll-ups")
        done: dict[str, int] = {}
        while not self._stop.is_set():
            await asyncio.sleep(self.rollups_every_s)
            try:
                for state in self.intake.current_states():
                    minutes = complete_minutes(time.time(), after=done.get(state.key, 0), window_s=keys.HISTORY_S)
                    if not minutes:
                        continue
                    rollups = roll_up(await writer.read_points(state.key), minutes=minutes)
                    if await _in_database(partial(save_rollups, state.machine, state.worker, rollups)):
                        done[state.key] = minutes[-1]
            # Redis or any database driver; this is the loop's edge
            except Exception as error:
                await outage.wait(error)
                continue
            outage.over()


def _row_due(state: WorkerState, saved: tuple[str, float] | None) -> bool:
    return saved is None or state.state != saved[0] or state.received - saved[1] >= ROWS_EVERY_S


async def _in_database(write: Callable[[], T]) -> T:
    def run() -> T:
        close_old_connections()
        try:
            return write()
        finally:
            close_old_connections()

    return await sync_to_async(run)()


async def _send(update: Update) -> None:
    layer = get_channel_layer()
    if layer is not None:
        await layer.group_send(GROUP, {"type": EVENT, "body": encode(update)})
