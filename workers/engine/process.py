"""The worker as a whole: builds the stages, watches them, ends in order."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial

import structlog
import torch

from wire.frames import PROTOCOL, Goodbye, Hello
from wire.jobs import Task
from workers.engine.answers import Answers
from workers.engine.device import Device
from workers.engine.devices import open_probe
from workers.engine.generation import cache_bytes
from workers.engine.link import Link
from workers.engine.load import AdapterLoader
from workers.engine.meter import Meter
from workers.engine.model_loader import ModelLoader
from workers.engine.outbox import Outbox
from workers.engine.pipes import Pipes
from workers.engine.prepare import Preparer
from workers.engine.residents import Residents
from workers.engine.sampler import Sampler
from workers.engine.shelf import Shelf
from workers.engine.works import WaitingRoom
from workers.generation.generator import StepBounds
from workers.models import ModelOptions
from workers.packing.host import HostTier
from workers.settings import WorkerSettings

log = structlog.get_logger("worker")
_MODEL_SHARE = 0.6
_GENERATION_SHARE = 0.15
_LEAST_GENERATION_BYTES = 64 * 1024**2
_BATCHES_OF_ROOM = 2
_FLUSH_S = 5.0


class Process:
    """Stages joined by bounded queues. The death of any stage ends the process loudly."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._done = threading.Event()
        self._failed: str | None = None
        probe = open_probe(settings.device)
        memory = probe.memory_bytes or 0
        options = ModelOptions(
            device=settings.device,
            slots=settings.slots,
            max_rank=settings.max_rank,
            adapter_bytes=settings.adapter_bytes,
            dtype=settings.dtype,
            generation_bytes=settings.generation_bytes or max(_LEAST_GENERATION_BYTES, int(_GENERATION_SHARE * memory)),
        )
        shelf = Shelf(half_life_s=settings.residency_half_life_s)
        host, pipes, meter = HostTier(settings.host_adapter_bytes), Pipes(), Meter()
        self._room = room = WaitingRoom(room_tokens=_BATCHES_OF_ROOM * settings.batch_tokens)
        self._outbox = outbox = Outbox()
        self._pipes = pipes
        answers = Answers(room, shelf, outbox, meter, settings.worker_name)
        residents = Residents(
            room,
            shelf,
            host,
            pipes,
            answers,
            outbox,
            meter,
            model_limit_bytes=settings.model_bytes or int(_MODEL_SHARE * memory),
            cache_bytes=partial(cache_bytes, shelf),
            device=settings.device,
            batch_tokens=settings.batch_tokens,
            batch_s=settings.batch_ms / 1e3,
        )
        hello = Hello(
            protocol=PROTOCOL,
            worker=settings.worker_name,
            device=probe.id,
            device_name=probe.name,
            pid=os.getpid(),
            tasks=[task.value for task in Task],
            memory_bytes=probe.memory_bytes,
        )
        self._device = Device(
            room,
            shelf,
            host,
            pipes,
            answers,
            outbox,
            meter,
            residents,
            batch_tokens=settings.batch_tokens,
            batch_s=settings.batch_ms / 1e3,
            step_bounds=StepBounds(texts=settings.generation_texts, step_s=settings.generation_step_ms / 1e3),
        )
        self._preparer = Preparer(room, shelf, host, pipes, answers)
        self._adapter_loader = AdapterLoader(room, shelf, host, pipes, answers, outbox)
        self._model_loader = ModelLoader(room, shelf, pipes, answers, outbox, options)
        self._sampler = Sampler(settings.worker_name, probe, room, shelf, residents, meter, outbox, host)
        self._link = Link(settings.socket_path, hello, room, shelf, pipes, answers, outbox)

    def run(self) -> int:
        """Serve until SIGTERM or SIGINT; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        stages: dict[str, Callable[[], None]] = {
            "writer": self._outbox.run,
            "tokenizer": partial(self._preparer.run, self._pipes.prepare),
            "bulk tokenizer": partial(self._preparer.run, self._pipes.prepare_bulk),
            "adapter loader": self._adapter_loader.run,
            "model loader": self._model_loader.run,
            "sampler": self._sampler.run,
            "link": self._link.run,
            "device": self._device.run,
        }
        threads = {
            name: threading.Thread(target=self._watched, args=(name, stage), name=name, daemon=True)
            for name, stage in stages.items()
        }
        for thread in threads.values():
            thread.start()
        self._done.wait()
        if self._failed is not None:
            log.critical("a stage died, the worker ends", stage=self._failed)
            return 1
        self._goodbye(threads)
        return 1 if self._failed is not None else 0

    def _goodbye(self, threads: dict[str, threading.Thread]) -> None:
        """Finish the running batch, hand the rest back, and let everything posted reach the sidecar."""
        self._link.stop()
        self._room.stop()
        threads["device"].join()
        unstarted = self._room.unfinished()
        self._outbox.post(Goodbye(unstarted=unstarted, reason="terminated"))
        self._sampler.stop()
        self._pipes.close()
        self._outbox.close()
        threads["writer"].join(_FLUSH_S)
        self._outbox.detach()
        log.info("worker ended", unstarted=len(unstarted))

    def _on_signal(self, number: int, frame: object) -> None:
        self._done.set()

    def _watched(self, name: str, stage: Callable[[], None]) -> None:
        try:
            stage()
        except BaseException:
            log.exception("stage died", stage=name)
            self._failed = name
            self._done.set()


def serve(settings: WorkerSettings) -> int:
    """Run one worker in this process; returns its exit code."""
    torch.set_num_threads(settings.torch_threads)
    # stages hand work over within a request; the default of 5 ms would be most of a short one
    sys.setswitchinterval(0.0005)
    log.info(
        "worker starts",
        worker=settings.worker_name,
        device=settings.device,
        threads=settings.torch_threads,
        slots=settings.slots,
        socket=str(settings.socket_path),
    )
    return Process(settings).run()
