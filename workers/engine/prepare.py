"""The tokenizer's stage: it runs beside the forward pass, so the device never waits for text."""

from __future__ import annotations

import queue

import structlog

from wire.errors import Code, ErrorInfo, ShoalError
from wire.jobs import InputsReference
from wire.registry import ModelRecord
from workers.engine.answers import Answers
from workers.engine.pipes import LoadAdapter, Pipes
from workers.engine.shelf import Shelf
from workers.engine.works import WaitingRoom, Work
from workers.models.loaded import LoadedModel
from workers.packing.host import HostTier

log = structlog.get_logger("worker.prepare")


class Preparer:
    """Finds a job's model and adapter and tokenizes its inputs; the loader fetches an adapter that is nowhere near."""

    def __init__(self, room: WaitingRoom, shelf: Shelf, host: HostTier, pipes: Pipes, answers: Answers) -> None:
        self._room = room
        self._shelf = shelf
        self._host = host
        self._pipes = pipes
        self._answers = answers

    def run(self, jobs: queue.Queue[Work | None]) -> None:
        """Prepare what comes through ``jobs`` until it is closed; two threads may do so side by side."""
        while (work := jobs.get()) is not None:
            if work.gone:
                continue
            try:
                self._prepare(work)
            except ShoalError as error:
                self._answers.fail(work, error.info)
            except Exception as error:
                log.exception("a job could not be prepared", job=work.job.id)
                self._answers.fail(work, ErrorInfo(Code.INTERNAL, f"The inputs could not be tokenized: {error!r}."))
            self._answers.offer_room()

    def _prepare(self, work: Work) -> None:
        found = self._shelf.find(work)
        if found is None:
            return
        if isinstance(found, ModelRecord):
            self._pipes.models.put(found)
            return
        inputs = work.job.inputs
        if isinstance(inputs, InputsReference):
            raise ShoalError(Code.INVALID_REQUEST, "The job's inputs were not resolved before it reached the worker.")
        model = work.model = found.model
        digest = work.job.adapter_digest
        if digest is not None:
            # first: the adapter's head decides which tasks there are, and how their texts become rows
            known = self._find_adapter(work, model, digest)
            if not known:
                self._pipes.adapters.put(LoadAdapter(work))
                return
        work.prepared = model.prepare(work.job.task, inputs, work.head)
        self._room.make_ready(work)

    def _find_adapter(self, work: Work, model: LoadedModel, digest: str) -> bool:
        """Take the head of the job's adapter from its slot, the loader or the host; false when it is in none."""
        resident = model.adapters.table.get(digest)
        if resident is not None:
            work.head = resident.head.header if resident.head is not None else None
            return True
        if work.adapter is None:
            work.adapter = self._host.get(model.key, digest)
        if work.adapter is None:
            return False
        work.head = work.adapter.head.header if work.adapter.head is not None else None
        return True
