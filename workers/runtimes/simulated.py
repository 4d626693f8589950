"""A worker whose device is simulated: the real process, socket, credit and batch formation, but no model.

``python -m workers --device simulated:<name>`` needs no torch, so that tens of devices run on two cores. A batch takes
``fixed + tokens · token + adapters · adapter`` (``SHOAL_SIMULATED_…``), and answers are a function of the text and the
digests. Whatever it says of itself is labelled ``simulated``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time

import psutil
import structlog

from wire import frames
from wire.jobs import Task
from wire.telemetry import DeviceSample, WorkerSample, WorkerState
from workers.runtimes.simulated_engine import SimulatedEngine
from workers.runtimes.simulated_socket import Socket
from workers.settings import WorkerSettings

log = structlog.get_logger("worker.simulated")

SAMPLE_S = 1.0
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0


class SimulatedWorker:
    """One loop: a task reads, one is the device, one samples."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._engine = SimulatedEngine(settings, self._send)
        self._socket: Socket | None = None
        self._process = psutil.Process()
        self._began = time.monotonic()
        self._name = f"Simulated device {settings.device.partition(':')[2]}"

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT; the running batch is finished first."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._engine.stop)
        async with asyncio.TaskGroup() as group:
            others = [group.create_task(self._read()), group.create_task(self._sample_each_second())]
            await self._engine.run()
            if self._socket is not None:
                self._send(frames.Goodbye(unstarted=list(self._engine.jobs.works), reason="terminated"))
                await self._socket.close()
            for task in others:
                task.cancel()

    async def _read(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                socket = await Socket.connect(self._settings.socket_path)
            except OSError:
                await asyncio.sleep(pause_s)
                pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
                continue
            pause_s = FIRST_PAUSE_S
            self._engine.jobs.reset()
            self._socket = socket
            self._send(self._hello())
            if await self._serve(socket):
                pause_s = LONGEST_PAUSE_S
                await asyncio.sleep(pause_s)
            self._engine.jobs.reset()
            await socket.close()

    async def _serve(self, socket: Socket) -> bool:
        """Read until the connection ends; whether the sidecar refused it, which a quick retry would not change."""
        try:
            while (frame := await socket.receive()) is not None:
                if isinstance(frame, frames.Refused):
                    log.error("the sidecar refused this worker", reason=frame.reason)
                    return True
                self._engine.take(frame)
        except ValueError as error:
            log.warning("the sidecar said something unreadable, connecting again", error=str(error))
        return False

    def _send(self, frame: frames.WorkerFrame | None) -> None:
        if self._socket is not None:
            self._socket.send(frame)

    def _hello(self) -> frames.Hello:
        return frames.Hello(
            protocol=frames.PROTOCOL,
            worker=self._settings.worker_name,
            device=self._settings.device,
            device_name=self._name,
            pid=os.getpid(),
            tasks=[task.value for task in Task],
            memory_bytes=self._engine.device.memory_bytes,
            simulated=True,
        )

    async def _sample_each_second(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_S)
            self._send(frames.Stats(sample=self.sample()))

    def sample(self) -> WorkerSample:
        """What happened since the last sample."""
        engine, device = self._engine, self._engine.device
        counts, interval_s = engine.meter.take()
        loads, evicted = device.take_counts()
        busy = round(min(1.0, counts.busy_s / max(interval_s, 1e-6)), 4)
        waiting = [one for one in engine.jobs.works.values() if one.started is None]
        return WorkerSample(
            worker=self._settings.worker_name,
            state=self._state,
            at=time.time(),
            device=DeviceSample(
                id=self._settings.device,
                kind="simulated",
                name=self._name,
                utilization=busy,
                memory_used_bytes=device.used_bytes,
                memory_total_bytes=device.memory_bytes,
                note="Simulated: no model runs. Times follow a stated cost model, answers are made of hashes.",
            ),
            uptime_s=round(time.monotonic() - self._began, 3),
            busy=busy,
            requests=counts.requests,
            tokens=counts.tokens,
            rows=counts.rows,
            errors=counts.errors,
            waiting_jobs=len(waiting),
            waiting_tokens=sum(sum(one.lengths) for one in waiting),
            batch_rows=counts.batch_rows,
            batch_adapters=counts.batch_adapters,
            queue_ms=counts.queue_ms,
            loads=loads,
            evictions=len(evicted),
            process_bytes=self._process.memory_info().rss,
            reserved_bytes=device.used_bytes,
            models=device.resident_models(),
            adapters=device.resident_adapters(),
            evicted=evicted,
            budget_bytes=device.memory_bytes,
        )

    @property
    def _state(self) -> WorkerState:
        if not self._engine.jobs.draining:
            return WorkerState.READY if self._engine.settled else WorkerState.STARTING
        return WorkerState.DRAINING if self._engine.jobs.works else WorkerState.DRAINED


def serve(settings: WorkerSettings) -> int:
    """Run one simulated worker in this process; returns its exit code."""
    log.info("simulated worker starts", worker=settings.worker_name, device=settings.device,
             fixed_ms=settings.simulated_fixed_ms, token_us=settings.simulated_token_us,
             adapter_us=settings.simulated_adapter_us, socket=str(settings.socket_path))  # fmt: skip
    asyncio.run(SimulatedWorker(settings).run())
    log.info("simulated worker ended", worker=settings.worker_name)
    return 0
