"""Keeps the queue's streams in being and publishes again what a lost stream or connection took along."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime

import nats.errors
import structlog
from nats.js.errors import APIError, NotFoundError

from fabric.connection import Connection
from fabric.topology import QueueSettings, ensure_buckets, ensure_streams
from gateway.metrics import Metrics
from gateway.queue import WorkQueue
from wire.subjects import WORK_STREAM

log = structlog.get_logger(__name__)

LOOK_S = 5.0
RETRY_S = 0.2
# A server that has just started may swallow a request; waiting long for that answer costs every waiting client.
ANSWER_S = 1.0


class QueueKeeper:
    """Looks at the work stream every 5 s, and at once after a reconnect or when a publish found no stream."""

    def __init__(self, connection: Connection, queue: WorkQueue, settings: QueueSettings, metrics: Metrics) -> None:
        self.ready = False
        self._queue = queue
        self._settings = settings
        self._metrics = metrics
        self._stream_made: datetime | None = None
        self._lost_connection = False
        self._js = connection.jetstream(timeout=ANSWER_S)
        connection.on_reconnect(self._note_reconnect)

    async def run(self) -> None:
        """Runs for ever. Raises ``TopologyConflict`` when streams exist that cannot serve as configured."""
        while True:
            try:
                await self._look()
            except (APIError, nats.errors.Error, TimeoutError, OSError) as error:
                if self.ready:
                    log.warning("cannot look after the queue, trying again", error=str(error) or repr(error))
                self.ready = False
                await asyncio.sleep(RETRY_S)
                continue
            self.ready = True
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._queue.stream_lost.wait()

    async def _note_reconnect(self) -> None:
        self._lost_connection = True
        self._queue.stream_lost.set()

    async def _look(self) -> None:
        suspected = self._queue.stream_lost.is_set()
        if self._stream_made is None or suspected:
            self._queue.stream_lost.clear()
            await self._ensure()
        try:
            info = await self._js.stream_info(WORK_STREAM)
        except NotFoundError:
            await self._ensure()
            info = await self._js.stream_info(WORK_STREAM)
        self._metrics.queue_messages.set(info.state.messages)
        self._metrics.queue_bytes.set(info.state.bytes)
        lost = self._lost_connection or info.created != self._stream_made
        self._stream_made, self._lost_connection = info.created, False
        if lost or suspected:
            count = await self._queue.publish_again(accepted_too=lost)
            if count:
                log.warning("queue or connection was lost, waiting jobs are published again", jobs=count)

    async def _ensure(self) -> None:
        await ensure_streams(self._js, self._settings)
        await ensure_buckets(self._js, self._settings)
