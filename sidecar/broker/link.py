"""The connection to NATS together with the incarnation of the WORK stream it now leads to.

After a restart of a server with memory storage the stream is made anew and counts from 1 again. An acknowledgement of
a delivery from before would then settle another job. So nothing is settled until the stream behind the connection is
known again, and a delivery of another incarnation is never settled at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import Any

import msgspec
import nats.errors
import structlog
from nats.js.errors import APIError

from fabric.connection import Connection
from fabric.topology import QueueSettings, TopologyConflict, delete_consumer, ensure_consumer, ensure_streams
from sidecar.broker.clock import ServerClock
from wire import codec
from wire.subjects import LANE, WORK_STREAM, WORK_SUBJECTS, decode_token, pool_work

log = structlog.get_logger(__name__)

RETRY_S = 0.25
ROUND_TRIP_S = 1.0
CLOCK_S = 30.0


@dataclass(frozen=True, slots=True)
class Source:
    """Where jobs come from: one consumer."""

    pool: str
    model: str
    lane: str = LANE


class _StreamState(msgspec.Struct, frozen=True):
    subjects: dict[str, int] | None = None


class _StreamInfo(msgspec.Struct, frozen=True):
    state: _StreamState = _StreamState()


class Link:
    """NATS as the rest of the sidecar sees it. ``stream`` is the stream's time of creation, empty while unknown."""

    def __init__(self, connection: Connection, queue: QueueSettings) -> None:
        self.connection = connection
        self.js = connection.jetstream()
        self.queue = queue
        self.stream = ""
        self.clock = ServerClock()
        self.last_round_trip = 0.0
        self._verified_reconnects = -1
        self._trouble = ""
        self._doubt = asyncio.Event()
        self._known = asyncio.Event()
        connection.on_reconnect(self._after_reconnect)

    @property
    def ready(self) -> bool:
        """Whether publishing and settling lead to the stream that is known."""
        return (
            bool(self.stream)
            and self.connection.is_connected
            and self._verified_reconnects == self.connection.stats["reconnects"]
        )

    async def wait_ready(self) -> None:
        """Return once ``ready``."""
        while not self.ready:
            self._known.clear()
            self._doubt.set()
            await self._known.wait()

    def doubt(self) -> None:
        """Look again which stream is there (it was reported missing)."""
        self.stream = ""
        self._doubt.set()

    async def verify(self) -> None:
        """Make the streams if they are missing and learn the incarnation. Raises as ``ensure_streams`` does."""
        reconnects = self.connection.stats["reconnects"]
        await ensure_streams(self.js, self.queue)
        info = await self._stream_info()
        created = info.get("created")
        if not isinstance(created, str):
            raise nats.errors.Error(f"stream {WORK_STREAM} cannot be read: {info.get('error')}")
        self.stream = created
        self._verified_reconnects = reconnects
        self._known.set()

    async def _stream_info(self) -> dict[str, Any]:
        sent = time.time()
        response = await self.connection.request(f"$JS.API.STREAM.INFO.{WORK_STREAM}", b"", timeout=5)
        info = codec.decode_json(response.data, dict[str, Any])
        self.clock.measure(str(info.get("ts", "")), sent, time.time())
        return info

    async def ensure_consumer(self, source: Source) -> str:
        """Make or update the consumer of ``source``."""
        return await ensure_consumer(self.js, source.pool, source.model, self.queue, source.lane)

    async def delete_consumer(self, source: Source) -> None:
        """Remove the consumer of ``source``."""
        await delete_consumer(self.js, source.pool, source.model, source.lane)

    async def waiting(self, pool: str = "") -> dict[Source, int]:
        """Messages in the stream for each (model, lane) of ``pool`` (or of all), also those that a machine works at.

        One question for all models: a registry of thousands costs no more than one of three.
        """
        request = codec.encode_json({"subjects_filter": pool_work(pool) if pool else WORK_SUBJECTS})
        response = await self.connection.request(f"$JS.API.STREAM.INFO.{WORK_STREAM}", request, timeout=5)
        state = codec.decode_json(response.data, _StreamInfo).state
        found = {}
        for subject, count in (state.subjects or {}).items():
            _, of_pool, model, lane = subject.split(".", 3)
            found[Source(decode_token(of_pool), decode_token(model), lane)] = count
        return found

    async def run(self) -> None:
        """Stage: verifies after every doubt until it succeeds."""
        while True:
            await self._doubt.wait()
            self._doubt.clear()
            if self.ready:
                self._known.set()
                continue
            try:
                await self.verify()
            except (nats.errors.Error, APIError, TopologyConflict, TimeoutError, OSError, ValueError) as error:
                self._tell_trouble(error)
                await asyncio.sleep(RETRY_S)
                self._doubt.set()
            else:
                self._trouble = ""

    async def run_measure(self) -> None:
        """Stage: notes the time of the last round trip, and the server's clock now and then."""
        measured = 0.0
        while True:
            await asyncio.sleep(ROUND_TRIP_S)
            await self._note_round_trip()
            now = asyncio.get_running_loop().time()
            if now - measured >= CLOCK_S and self.ready:
                measured = now
                with contextlib.suppress(nats.errors.Error, TimeoutError, OSError, ValueError):
                    await self._stream_info()

    def _tell_trouble(self, error: Exception) -> None:
        # It is tried four times a second; the same trouble is told once.
        trouble = repr(error)
        if trouble == self._trouble:
            return
        self._trouble = trouble
        if isinstance(error, TopologyConflict):
            log.error("the work queue cannot be used as configured, no job is taken until it can", reason=str(error))
        else:
            log.warning("the work queue is not there yet, trying again", error=trouble)

    async def _note_round_trip(self) -> None:
        if not self.connection.is_connected:
            return
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            await self.connection.flush(timeout=5)
        except (nats.errors.Error, TimeoutError, OSError):
            return
        self.last_round_trip = begun

    async def _after_reconnect(self) -> None:
        self._doubt.set()
