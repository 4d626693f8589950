"""Signs of life for others: presence each second, workers' samples as they come. Nothing waits for either."""

from __future__ import annotations

import asyncio
import time
from collections import deque

import msgspec
import nats.errors

from fabric.connection import Connection
from sidecar.dispatch.roster import Roster
from wire import codec, subjects
from wire.jobs import Presence, Task
from wire.telemetry import Telemetry, WorkerSample

PRESENCE_S = 1.0
MAX_WAITING_SAMPLES = 64


class Signs:
    """Publisher of presence and telemetry. Samples that cannot be sent are dropped, the oldest first."""

    def __init__(self, connection: Connection, machine: str, pool: str) -> None:
        self._connection = connection
        self._machine = machine
        self._pool = pool
        self._samples: deque[Telemetry] = deque(maxlen=MAX_WAITING_SAMPLES)
        self._wake = asyncio.Event()

    def sample(
        self, worker: str, sample: WorkerSample, queued_jobs: int, cached_bytes: int, refused: dict[str, float]
    ) -> None:
        """Forward one sample of ``worker``."""
        renamed = _renamed(sample, worker)
        self._samples.append(Telemetry(self._machine, self._pool, renamed, queued_jobs, cached_bytes, refused))
        self._wake.set()

    async def run_telemetry(self) -> None:
        """Stage: forwards samples."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._samples:
                telemetry = self._samples.popleft()
                subject = subjects.telemetry(self._machine, telemetry.sample.worker)
                await self._publish(subject, codec.encode(telemetry))

    async def run_presence(self, roster: Roster) -> None:
        """Stage: says once a second what this machine serves."""
        while True:
            models, tasks = roster.offered()
            await self.say_presence(models, tasks, len(roster.taking))
            await asyncio.sleep(PRESENCE_S)

    async def say_presence(self, models: frozenset[str], version_tasks: frozenset[Task], workers: int) -> None:
        """Publish presence once."""
        presence = Presence(
            machine=self._machine,
            pool=self._pool,
            models=sorted(models),
            workers=workers,
            at=time.time(),
            version_tasks=sorted(version_tasks),
        )
        await self._publish(subjects.presence(self._machine), codec.encode(presence))

    async def _publish(self, subject: str, data: bytes) -> None:
        # While the connection is away a buffered sign would come late and lie about the present.
        if not self._connection.is_connected:
            return
        try:
            await self._connection.publish(subject, data)
        except (nats.errors.Error, OSError):
            return


def _renamed(sample: WorkerSample, worker: str) -> WorkerSample:
    """The sample under the id the worker said hello with, so that one worker never shows up as two."""
    if sample.worker == worker:
        return sample
    return msgspec.structs.replace(sample, worker=worker)
