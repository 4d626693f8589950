"""The loader's stage: reads and checks weights from disk, so that neither tokenizer nor device waits for a file."""

from __future__ import annotations

import queue
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import structlog

from wire.errors import Code, ErrorInfo, ShoalError
from wire.frames import Ensure, Ensured
from wire.registry import ModelRecord
from workers.engine.answers import Answers
from workers.engine.outbox import Outbox
from workers.engine.pipes import Adopt, DeviceCommand, LoadAdapter, LoadModel, MakeResident, MakeRoom, Pipes
from workers.engine.shelf import Shelf, ShelvedModel
from workers.engine.works import WaitingRoom, Work
from workers.models import LoadedModel, ModelOptions, load_model
from workers.packing.artifact import PreparedAdapter, read_artifact
from workers.packing.host import HostTier
from workers.sources import resolve_source, weight_files

log = structlog.get_logger("worker.load")
_FAILURES_KEPT = 1024


@dataclass(frozen=True, slots=True)
class _FileState:
    """Identity of a file's content on disk; a file fetched anew has another."""

    inode: int
    modified_ns: int
    size_bytes: int


class Loader:
    """Reads adapters and base models, one at a time; each failure reaches those who asked and nobody else."""

    def __init__(
        self,
        room: WaitingRoom,
        shelf: Shelf,
        host: HostTier,
        pipes: Pipes,
        answers: Answers,
        outbox: Outbox,
        options: ModelOptions,
    ) -> None:
        self._room = room
        self._shelf = shelf
        self._host = host
        self._pipes = pipes
        self._answers = answers
        self._outbox = outbox
        self._options = options
        self._failures: OrderedDict[tuple[str, _FileState], ErrorInfo] = OrderedDict()

    def run(self) -> None:
        """Load until the pipe is closed."""
        while (task := self._pipes.load.get()) is not None:
            match task:
                case LoadAdapter(work=work):
                    self._for_work(work)
                case LoadModel(record=record):
                    self._model(record)
                case Ensure():
                    self._ensure(task)
            self._answers.offer_room()

    def _for_work(self, work: Work) -> None:
        digest, model = work.job.adapter_digest, work.model
        if work.gone or digest is None or model is None:
            return
        try:
            if work.artifact_path is None:
                raise ShoalError(Code.ARTIFACT_UNAVAILABLE, f"The file of adapter {digest[:12]} was not delivered.")
            work.adapter = self._adapter(model, digest, Path(work.artifact_path))
        except ShoalError as error:
            self._answers.fail(work, error.info)
        else:
            self._room.make_ready(work)

    def _ensure(self, frame: Ensure) -> None:
        shelved = self._shelf.get(frame.model)
        if shelved is None:
            info = ErrorInfo(Code.MODEL_UNLOADABLE, f"The model {frame.model} is not loaded on this worker.")
            self._outbox.post(Ensured(frame.digest, info))
            return
        try:
            adapter = self._adapter(shelved.model, frame.digest, Path(frame.path))
        except ShoalError as error:
            self._outbox.post(Ensured(frame.digest, error.info))
        else:
            self._to_device(MakeResident(shelved.model, adapter))

    def _adapter(self, model: LoadedModel, digest: str, path: Path) -> PreparedAdapter:
        kept = self._host.get(model.record.id, digest)
        if kept is not None:
            return kept
        state = _file_state(path)
        failure = self._failures.get((digest, state))
        if failure is not None:  # the same bytes fail the same way; a file fetched anew is read anew
            raise ShoalError(failure.code, failure.message, hint=failure.hint)
        start = time.perf_counter()
        try:
            adapter = model.prepare_artifact(digest, read_artifact(path, expected_digest=digest))
        except Exception as error:
            raised = error if isinstance(error, ShoalError) else _unreadable(digest, error)
            self._failures[(digest, state)] = raised.info
            while len(self._failures) > _FAILURES_KEPT:
                self._failures.popitem(last=False)
            raise raised from error
        self._host.put(model.record.id, adapter)
        log.info(
            "adapter read",
            digest=digest[:12],
            rank=adapter.rank,
            size_bytes=adapter.size_bytes,
            read_ms=round((time.perf_counter() - start) * 1e3, 1),
        )
        return adapter

    def _model(self, record: ModelRecord) -> None:
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
        self._to_device(Adopt(ShelvedModel(model=model, reload_s=reload_s, pinned=record.pinned)))

    def _to_device(self, command: DeviceCommand) -> None:
        self._pipes.device.put(command)
        self._room.nudge()


def _file_state(path: Path) -> _FileState:
    try:
        found = path.stat()
    except OSError as error:
        raise ShoalError(
            Code.ARTIFACT_UNAVAILABLE, f"The adapter file {path.name} cannot be read: {error.strerror}."
        ) from error
    return _FileState(found.st_ino, found.st_mtime_ns, found.st_size)


def _unreadable(digest: str, error: Exception) -> ShoalError:
    return ShoalError(Code.ADAPTER_UNLOADABLE, f"The adapter {digest[:12]} cannot be loaded: {error!r}.")


def _unloadable(record: ModelRecord, error: Exception) -> ShoalError:
    return ShoalError(Code.MODEL_UNLOADABLE, f"The model {record.id} cannot be loaded: {error!r}.")
