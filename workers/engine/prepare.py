"""The tokenizer's stage: it runs beside the forward pass, so the device never waits for text."""

from __future__ import annotations

import queue

import structlog

from wire.errors import Code, ErrorInfo, ShoalError
from wire.jobs import EmbeddingInputs
from wire.registry import ModelRecord
from workers.engine.answers import Answers
from workers.engine.pipes import LoadAdapter, Pipes
from workers.engine.shelf import Shelf
from workers.engine.works import WaitingRoom, Work
from workers.packing.host import HostTier

log = structlog.get_logger("worker.prepare")


class Preparer:
    """Finds a job's model, tokenizes its inputs, and sends it on: to the loader when its adapter is nowhere near."""

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
        if not isinstance(inputs, EmbeddingInputs):
            raise ShoalError(Code.INVALID_REQUEST, "The job's inputs were not resolved before it reached the worker.")
        if not inputs.texts:
            raise ShoalError(Code.INPUT_EMPTY, "The job has no texts.", param="input")
        model = found.model
        if work.job.task not in model.kind.tasks:
            raise ShoalError(Code.TASK_UNSUPPORTED, f"{work.job.model} does not do {work.job.task.value}.")
        work.model = model
        work.prepared = model.kind.prepare(inputs)
        digest = work.job.adapter_digest
        if digest is not None and digest not in model.adapters.table:
            work.adapter = self._host.get(model.key, digest)
            if work.adapter is None:
                self._pipes.adapters.put(LoadAdapter(work))
                return
        self._room.make_ready(work)
