"""One telemetry sample a second, from its own thread: it goes on while a batch runs."""

from __future__ import annotations

import threading
import time

import psutil

from wire.frames import Stats
from wire.telemetry import WorkerSample, WorkerState
from workers.engine.devices import DeviceProbe
from workers.engine.generation import cache_bytes
from workers.engine.meter import Meter
from workers.engine.outbox import Outbox
from workers.engine.residents import Residents
from workers.engine.shelf import Shelf
from workers.engine.works import WaitingRoom
from workers.packing.host import HostTier

_INTERVAL_S = 1.0


class Sampler:
    """Builds ``WorkerSample`` from the meter, the room and the last note of what is resident."""

    def __init__(
        self,
        worker: str,
        probe: DeviceProbe,
        room: WaitingRoom,
        shelf: Shelf,
        residents: Residents,
        meter: Meter,
        outbox: Outbox,
        host: HostTier,
    ) -> None:
        self._worker = worker
        self._probe = probe
        self._room = room
        self._shelf = shelf
        self._residents = residents
        self._meter = meter
        self._outbox = outbox
        self._host = host
        self._process = psutil.Process()
        self._started = time.monotonic()
        self._stopping = threading.Event()

    def run(self) -> None:
        """Sample until :meth:`stop`."""
        while not self._stopping.wait(_INTERVAL_S):
            self._outbox.post(Stats(sample=self.sample()))

    def stop(self) -> None:
        """End :meth:`run`."""
        self._stopping.set()

    def sample(self) -> WorkerSample:
        """What happened since the last sample."""
        counts, interval_s = self._meter.take()
        waiting_jobs, waiting_tokens = self._room.waiting()
        state = self._room.state
        if state is WorkerState.READY and not self._shelf.settled:
            state = WorkerState.STARTING
        return WorkerSample(
            worker=self._worker,
            state=state,
            at=time.time(),
            device=self._probe.sample(),
            uptime_s=round(time.monotonic() - self._started, 3),
            busy=round(min(1.0, counts.busy_s / max(interval_s, 1e-6)), 4),
            requests=counts.requests,
            tokens=counts.tokens,
            rows=counts.rows,
            errors=counts.errors,
            waiting_jobs=waiting_jobs,
            waiting_tokens=waiting_tokens,
            batch_rows=counts.batch_rows,
            batch_adapters=counts.batch_adapters,
            queue_ms=counts.queue_ms,
            loads=counts.loads,
            evictions=counts.evictions,
            evicted=counts.evicted,
            process_bytes=self._process.memory_info().rss,
            reserved_bytes=self._residents.reserved_bytes,
            models=self._residents.models,
            adapters=self._residents.adapters,
            budget_bytes=self._residents.budget_bytes,
            host_bytes=self._host.size_bytes,
            host_budget_bytes=self._host.limit_bytes,
            generating=self._room.generating(),
            generated_tokens=counts.generated,
            cache_bytes=cache_bytes(self._shelf),
        )
