"""The adapter loader's stage: reads and checks adapters, so that neither tokenizer nor device waits for a file."""

from __future__ import annotations

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
from workers.engine.pipes import LoadAdapter, MakeResident, Pipes
from workers.engine.shelf import Shelf
from workers.engine.works import WaitingRoom, Work
from workers.models import LoadedModel
from workers.oom import is_out_of_memory
from workers.packing.artifact import PreparedAdapter, read_artifact
from workers.packing.host import HostTier

log = structlog.get_logger("worker.load")
_FAILURES_KEPT = 1024
_LASTING = frozenset({Code.ADAPTER_UNLOADABLE, Code.ARTIFACT_CORRUPT})
"""Refusals that the same bytes meet again on the same model; all others may pass."""


@dataclass(frozen=True, slots=True)
class _FileState:
    """Identity of a file's content on disk; a file fetched anew has another."""

    inode: int
    modified_ns: int
    size_bytes: int


class AdapterLoader:
    """Reads adapters, one at a time; each failure reaches those who asked and nobody else."""

    def __init__(
        self,
        room: WaitingRoom,
        shelf: Shelf,
        host: HostTier,
        pipes: Pipes,
        answers: Answers,
        outbox: Outbox,
    ) -> None:
        self._room = room
        self._shelf = shelf
        self._host = host
        self._pipes = pipes
        self._answers = answers
        self._outbox = outbox
        self._failures: OrderedDict[tuple[str, str, _FileState], ErrorInfo] = OrderedDict()

    def run(self) -> None:
        """Load until the pipe is closed."""
        while (task := self._pipes.adapters.get()) is not None:
            match task:
                case LoadAdapter(work=work):
                    self._for_work(work)
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
            if work.prepared is None:
                # now that its head is known
                self._pipes.to_prepare(work)
            else:
                self._room.make_ready(work)

    def _ensure(self, order: Ensure) -> None:
        try:
            found = self._shelf.request(order)
            if found is None:  # it comes back once the model is loaded
                return
            if isinstance(found, ModelRecord):
                self._pipes.models.put(found)
                return
            if order.digest == found.model.record.digest:
                self._outbox.post(Ensured(order.digest))
                return
            adapter = self._adapter(found.model, order.digest, Path(order.path))
        except ShoalError as error:
            self._outbox.post(Ensured(order.digest, error.info))
        else:
            self._pipes.device.put(MakeResident(found.model, adapter))
            self._room.nudge()

    def _adapter(self, model: LoadedModel, digest: str, path: Path) -> PreparedAdapter:
        kept = self._host.get(model.key, digest)
        if kept is not None:
            return kept
        tried = (model.key, digest, _file_state(path))
        failure = self._failures.get(tried)
        if failure is not None:  # the same bytes fail the same way; a file fetched anew is read anew
            raise ShoalError(failure.code, failure.message, hint=failure.hint)
        start = time.perf_counter()
        try:
            adapter = model.prepare_artifact(digest, read_artifact(path, expected_digest=digest))
        except Exception as error:
            if not isinstance(error, ShoalError):
                raise _unreadable(digest, error) from error
            if error.info.code in _LASTING:
                self._failures[tried] = error.info
                while len(self._failures) > _FAILURES_KEPT:
                    self._failures.popitem(last=False)
            raise
        self._host.put(model.key, adapter)
        log.info(
            "adapter read",
            digest=digest[:12],
            rank=adapter.rank,
            size_bytes=adapter.size_bytes,
            read_ms=round((time.perf_counter() - start) * 1e3, 1),
        )
        return adapter


def _file_state(path: Path) -> _FileState:
    try:
        found = path.stat()
    except OSError as error:
        raise ShoalError(
            Code.ARTIFACT_UNAVAILABLE, f"The adapter file {path.name} cannot be read: {error.strerror}."
        ) from error
    return _FileState(found.st_ino, found.st_mtime_ns, found.st_size)


def _unreadable(digest: str, error: Exception) -> ShoalError:
    if isinstance(error, OSError):
        return ShoalError(
            Code.ARTIFACT_UNAVAILABLE, f"The file of adapter {digest[:12]} cannot be read: {error}.", hint="Retry."
        )
    if is_out_of_memory(error):
        return ShoalError(Code.OUT_OF_MEMORY, f"No memory to read adapter {digest[:12]}.", hint="Retry in a moment.")
    return ShoalError(Code.ADAPTER_UNLOADABLE, f"The adapter {digest[:12]} cannot be loaded: {error!r}.")
