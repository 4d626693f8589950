"""The bridge's loop for usage: into Redis once a second, into the database every few seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from controlplane.accounts.services import note_keys_used
from fleet.telemetry.outage import Outage
from fleet.telemetry.usage import UsageIntake, recent_minutes
from fleet.telemetry.writer import LiveWriter
from loras.metrics.rows import by_target, save_usage_minute

FLUSH_EVERY_S = 1.0
SAVE_EVERY_S = 5.0
# a minute is summed up again while late words of it may come
SAVED_WINDOW_S = 75


@dataclass(slots=True)
class UsageLoop:
    """``in_database`` runs a blocking function with a fresh database connection."""

    stop: asyncio.Event
    in_database: Callable[[Callable[[], object]], Awaitable[object]]
    intake: UsageIntake = field(default_factory=UsageIntake)
    save_every_s: float = SAVE_EVERY_S

    async def flush(self, writer: LiveWriter) -> None:
        """Write what waits to Redis once a second until stopped."""
        outage = Outage("Redis, for usage")
        while not self.stop.is_set():
            await asyncio.sleep(FLUSH_EVERY_S)
            try:
                await self.flush_once(writer)
            # whatever the client library raises; this is the loop's edge
            except Exception as error:
                await outage.wait(error)
            else:
                outage.over()

    async def flush_once(self, writer: LiveWriter) -> None:
        """Write what waits to Redis; it waits on when Redis is away."""
        waiting = dict(self.intake.pending)
        if waiting:
            await writer.write_usage(waiting)
            self.intake.mark_written(list(waiting))

    async def save(self, writer: LiveWriter) -> None:
        """Keep the database's minutes equal to those in Redis until stopped."""
        outage = Outage("Redis or the database, for usage")
        while not self.stop.is_set():
            await asyncio.sleep(self.save_every_s)
            try:
                for minute in recent_minutes(time.time(), window_s=SAVED_WINDOW_S):
                    totals = by_target(await writer.read_usage(minute))
                    if totals:
                        await self.in_database(partial(save_usage_minute, minute, totals))
                used = self.intake.take_key_ids()
                if used:
                    await self.in_database(partial(note_keys_used, used))
            # Redis or any database driver; this is the loop's edge
            except Exception as error:
                await outage.wait(error)
            else:
                outage.over()
