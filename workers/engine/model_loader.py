"""The model loader's stage: apart from the adapters', which must not wait for gigabytes of a base model."""

from __future__ import annotations

import queue
import time
from collections import OrderedDict
from pathlib import Path

import structlog

from wire.errors import Code, ErrorInfo, ShoalError
from wire.frames import Ensured
from wire.registry import ModelRecord
from workers.engine.answers import Answers
from workers.engine.outbox import Outbox
from workers.engine.pipes import Adopt, DeviceCommand, MakeRoom, Pipes
from workers.engine.shelf import Parked, Shelf, ShelvedModel
from workers.engine.works import WaitingRoom
from workers.models import LoadedModel, ModelOptions, load_model
from workers.oom import is_out_of_memory
from workers.sources import expected_bytes

log = structlog.get_logger("worker.load")
_SIZES_KEPT = 4096


class ModelLoader:
    """Loads models, one at a time; a failure reaches those who waited and nobody else."""

    def __init__(
        self,
        room: WaitingRoom,
        shelf: Shelf,
        pipes: Pipes,
        answers: Answers,
        outbox: Outbox,
        options: ModelOptions,
    ) -> None:
        self._room = room
        self._shelf = shelf
        self._pipes = pipes
        self._answers = answers
        self._outbox = outbox
        self._options = options
        self._sizes: OrderedDict[str, int] = OrderedDict()

    def run(self) -> None:
        """Load until the pipe is closed."""
        while (record := self._pipes.models.get()) is not None:
            self._load(record)
            self._answers.offer_room()

    def _load(self, record: ModelRecord) -> None:
        if not self._shelf.awaited(record):
            self._release(self._shelf.drop_load(record.id))
            return
        start = time.perf_counter()
        path = self._shelf.artifact_path(record)
        try:
            self._make_room(record, path)
            model = load_model(record, options=self._options, artifact=path)
        except Exception as error:
            raised = error if isinstance(error, ShoalError) else _unloadable(record, error)
            log.warning("model not loaded", model=record.id, reason=str(raised), hint=raised.info.hint)
            self._refuse(self._shelf.fail(record.id, raised.info), raised.info)
            return
        reload_s = time.perf_counter() - start
        log.info("model loaded", model=record.id, load_s=round(reload_s, 2))
        self._note_size(record, model)
        self._to_device(Adopt(ShelvedModel(model=model, reload_s=reload_s, record_pin=record.pinned)))

    def _make_room(self, record: ModelRecord, path: Path | None) -> None:
        """Wait until the device has room. Raises ``ShoalError`` when it will not."""
        size_bytes = self._sizes.get(record.digest) or expected_bytes(record, path)
        reply: queue.Queue[ErrorInfo | None] = queue.Queue(1)
        self._to_device(MakeRoom(record.id, size_bytes, reply))
        refused = reply.get()
        if refused is not None:
            raise ShoalError(refused.code, refused.message, hint=refused.hint)

    def _note_size(self, record: ModelRecord, model: LoadedModel) -> None:
        """The second time its own size is asked for, not a guess from its files."""
        if record.digest:
            self._sizes[record.digest] = model.size_bytes
            while len(self._sizes) > _SIZES_KEPT:
                self._sizes.popitem(last=False)

    def _release(self, parked: Parked) -> None:
        """What came in the moment between the question and the answer."""
        for waiting in parked.all():
            self._pipes.resume(waiting)

    def _refuse(self, parked: Parked, info: ErrorInfo) -> None:
        for work in parked.works:
            self._answers.fail(work, info)
        for order in parked.orders:
            self._outbox.post(Ensured(order.digest, info))

    def _to_device(self, command: DeviceCommand) -> None:
        self._pipes.device.put(command)
        self._room.nudge()


def _unloadable(record: ModelRecord, error: Exception) -> ShoalError:
    if is_out_of_memory(error):
        return ShoalError(Code.OUT_OF_MEMORY, f"No memory to load the model {record.id}.", hint="Retry in a moment.")
    return ShoalError(Code.MODEL_UNLOADABLE, f"The model {record.id} cannot be loaded: {error!r}.")
