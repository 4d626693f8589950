"""The model loader's stage: apart from the adapters', which must not wait for gigabytes of a base model."""

from __future__ import annotations

import queue
import time

import structlog

from wire.errors import Code, ErrorInfo, ShoalError
from wire.registry import ModelRecord
from workers.engine.answers import Answers
from workers.engine.pipes import Adopt, DeviceCommand, MakeRoom, Pipes
from workers.engine.shelf import Shelf, ShelvedModel
from workers.engine.works import WaitingRoom
from workers.models import ModelOptions, load_model
from workers.sources import resolve_source, weight_files

log = structlog.get_logger("worker.load")


class ModelLoader:
    """Loads base models, one at a time; a failure reaches the jobs that waited and nobody else."""

    def __init__(self, room: WaitingRoom, shelf: Shelf, pipes: Pipes, answers: Answers, options: ModelOptions) -> None:
        self._room = room
        self._shelf = shelf
        self._pipes = pipes
        self._answers = answers
        self._options = options

    def run(self) -> None:
        """Load until the pipe is closed."""
        while (record := self._pipes.models.get()) is not None:
            self._load(record)
            self._answers.offer_room()

    def _load(self, record: ModelRecord) -> None:
        start = time.perf_counter()
        try:
            size_bytes = sum(file.stat().st_size for file in weight_files(resolve_source(record.source)))
            reply: queue.Queue[ErrorInfo | None] = queue.Queue(1)
            self._to_device(MakeRoom(size_bytes, reply))
            refused = reply.get()
            if refused is not None:
                raise ShoalError(refused.code, refused.message, hint=refused.hint)
            model = load_model(record, options=self._options)
        except Exception as error:
            raised = error if isinstance(error, ShoalError) else _unloadable(record, error)
            log.warning("base model not loaded", model=record.id, reason=str(raised), hint=raised.info.hint)
            for work in self._shelf.fail(record.id, raised.info):
                self._answers.fail(work, raised.info)
            return
        reload_s = time.perf_counter() - start
        log.info("base model loaded", model=record.id, size_bytes=model.size_bytes, load_s=round(reload_s, 2))
        self._to_device(Adopt(ShelvedModel(model=model, reload_s=reload_s, record_pin=record.pinned)))

    def _to_device(self, command: DeviceCommand) -> None:
        self._pipes.device.put(command)
        self._room.nudge()


def _unloadable(record: ModelRecord, error: Exception) -> ShoalError:
    return ShoalError(Code.MODEL_UNLOADABLE, f"The model {record.id} cannot be loaded: {error!r}.")
