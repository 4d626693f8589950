"""Demand hints: how much work was published for a model, told to idle machines at most every 50 ms."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from nats.errors import Error as NatsError

from fabric.connection import Connection
from wire import codec, subjects
from wire.jobs import Demand

INTERVAL_S = 0.05


class DemandHints:
    """Counts jobs and token estimates per (pool, model) and publishes the sums; silent without traffic."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._counts: dict[tuple[str, str], tuple[int, int]] = {}
        self._flush: asyncio.Task[None] | None = None

    def add(self, pool: str, model: str, tokens: int) -> None:
        """Count one published job."""
        jobs, sum_tokens = self._counts.get((pool, model), (0, 0))
        self._counts[pool, model] = (jobs + 1, sum_tokens + tokens)
        if self._flush is None or self._flush.done():
            self._flush = asyncio.create_task(self._publish_soon())

    async def _publish_soon(self) -> None:
        while self._counts:
            await asyncio.sleep(INTERVAL_S)
            counts, self._counts = self._counts, {}
            for (pool, model), (jobs, tokens) in counts.items():
                hint = codec.encode(Demand(jobs=jobs, tokens=tokens))
                # A hint only shortens a wait that the queue's own delivery ends anyway.
                with suppress(NatsError):
                    await self._connection.publish(subjects.demand(pool, model), hint)
