"""The worker's stages around a tiny model, each run when a test says so, with the sidecar's end of the socket."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import torch

from wire.frames import Hello, Results, WorkerFrame
from wire.jobs import EmbeddingInputs, Job, Result, Task
from wire.registry import ModelRecord
from workers.channel import Channel
from workers.engine.answers import Answers
from workers.engine.device import Device
from workers.engine.load import AdapterLoader
from workers.engine.meter import Meter
from workers.engine.model_loader import ModelLoader
from workers.engine.outbox import Outbox
from workers.engine.passes import BatchRow, PassRunner
from workers.engine.pipes import Pipes
from workers.engine.prepare import Preparer
from workers.engine.residents import Residents
from workers.engine.shelf import Shelf, ShelvedModel
from workers.engine.works import WaitingRoom, Work
from workers.generation.generator import StepBounds
from workers.models import LoadedModel, ModelOptions, load_model
from workers.models.protocol import Row, RowOutput, TaskHead
from workers.packing.host import HostTier

_decoder = msgspec.msgpack.Decoder(WorkerFrame)


class Bench:
    """Stages as the worker's process joins them. ``model`` is loaded and listed."""

    def __init__(
        self,
        record: ModelRecord,
        options: ModelOptions | None = None,
        *,
        batch_tokens: int = 400,
        step_bounds: StepBounds | None = None,
    ) -> None:
        self.options = options or ModelOptions()
        self.room, self.shelf, self.host = WaitingRoom(room_tokens=1000), Shelf(), HostTier(1 << 24)
        self.meter, self.outbox, self.pipes = Meter(), Outbox(), Pipes()
        self.answers = Answers(self.room, self.shelf, self.outbox, self.meter, "cpu")
        self.residents = Residents(self.room, self.shelf, self.host, self.pipes, self.answers, self.outbox, self.meter,
                                   model_limit_bytes=1 << 30)  # fmt: skip
        self.passes = PassRunner(self.answers, self.meter, self.host)
        self.preparer = Preparer(self.room, self.shelf, self.host, self.pipes, self.answers)
        self.adapter_loader = AdapterLoader(self.room, self.shelf, self.host, self.pipes, self.answers, self.outbox)
        self.model_loader = ModelLoader(self.room, self.shelf, self.pipes, self.answers, self.outbox, self.options)
        self.device = Device(self.room, self.shelf, self.host, self.pipes, self.answers, self.outbox, self.meter,
                             self.residents, batch_tokens=batch_tokens, batch_s=10.0,
                             step_bounds=step_bounds)  # fmt: skip
        self.near, self.far = socket.socketpair()
        self.frames: list[WorkerFrame] = []
        self.results: dict[str, Result] = {}
        self.failures: list[BaseException] = []
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self.shelf.set_records([record])
        self.model = self.add_model(record)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.answers.connected(Channel(self.near), Hello(1, "cpu", "cpu", "cpu", 1, ["embeddings"]))
        self._start(self.outbox.run)

    def add_model(self, record: ModelRecord) -> LoadedModel:
        """Load and shelve a model as the device's thread does once its weights are there."""
        model = load_model(record, options=self.options)
        self.shelf.add(ShelvedModel(model, reload_s=1.0, record_pin=record.pinned))
        return model

    @property
    def shelved(self) -> ShelvedModel:
        found = self.shelf.get(self.model.record.id)
        assert found is not None
        return found

    def job(self, texts: list[str], *, adapter: str | None = None, model: str | None = None) -> Job:
        """A job of the bench's model unless another is named."""
        return Job(uuid.uuid4().hex, Task.EMBEDDINGS, "default", model or self.model.record.id, "",
                   EmbeddingInputs(texts), "team", 10, time.time() + 60, time.time(), "reply",
                   adapter_digest=adapter)  # fmt: skip

    def submit(self, job: Job, path: Path | None = None) -> Work:
        """What the link does with a job of a batch."""
        work = Work(job, str(path) if path is not None else None)
        assert self.room.admit(work)
        self.pipes.to_prepare(work)
        return work

    def admit(self, texts: list[str], *, adapter: str | None = None) -> Work:
        """A job that is tokenized, for a pass without the other stages."""
        work = Work(self.job(texts, adapter=adapter), None, model=self.model)
        work.prepared = self.model.prepare(Task.EMBEDDINGS, EmbeddingInputs(texts))
        self.room.admit(work)
        return work

    def run_pass(self, *works: Work) -> None:
        """Run all rows of ``works`` as one batch of one pass."""
        rows = [
            BatchRow(work, number, row)
            for work in works
            if work.prepared is not None
            for number, row in enumerate(work.prepared.rows)
        ]
        self.passes.run_pass(self.shelved, rows, in_use={row.adapter for row in rows if row.adapter is not None})

    def start_tokenizer(self) -> None:
        self._start(partial(self.preparer.run, self.pipes.prepare))

    def start_loaders(self) -> None:
        self._start(self.adapter_loader.run)
        self._start(self.model_loader.run)

    def start_device(self) -> None:
        self._start(self.device.run)

    def wait_ready(self, *works: Work) -> None:
        """Wait until the device could take all of ``works`` into one batch."""
        with self.room.changed:
            assert self.room.changed.wait_for(lambda: all(work.ready for work in works), timeout=20)

    def wait_for(self, *jobs: Job, timeout_s: float = 30.0) -> list[Result]:
        """The results of ``jobs``, in their order."""
        with self._changed:
            done = self._changed.wait_for(lambda: all(job.id in self.results for job in jobs), timeout=timeout_s)
        assert not self.failures, self.failures
        assert done, f"no answer within {timeout_s} s"
        return [self.results[job.id] for job in jobs]

    def end(self) -> None:
        """Stop every stage; all that was posted is in ``frames`` then."""
        self.room.stop()
        self.pipes.close()
        for thread in self._threads[1:]:
            thread.join(10)
        self.outbox.close()
        self._threads[0].join(10)
        self.outbox.detach()
        self._reader.join(10)
        self.near.close()
        self.far.close()

    def _start(self, stage: Callable[[], None]) -> None:
        def watched() -> None:
            try:
                stage()
            except BaseException as error:
                self.failures.append(error)

        thread = threading.Thread(target=watched, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _read(self) -> None:
        with self.far.makefile("rb") as stream:
            while head := stream.read(4):
                frame = _decoder.decode(stream.read(int.from_bytes(head, "big")))
                with self._changed:
                    self.frames.append(frame)
                    if isinstance(frame, Results):
                        self.results.update({result.job: result for result in frame.results if result.final})
                    self._changed.notify_all()


def limit_memory(model: LoadedModel, *, most_rows: int = 999, most_tokens: int = 999, adapters: int = 99) -> None:
    """Make the device fail above so many rows, tokens per row, or resident adapters."""
    kind = model.kind
    forward = kind.forward

    def limited(rows: Sequence[Row], heads: Sequence[TaskHead | None]) -> list[RowOutput]:
        resident = len(model.adapters.residents())
        if len(rows) > most_rows or max(map(len, rows)) > most_tokens or resident > adapters:
            raise torch.OutOfMemoryError("out of memory")
        return forward(rows, heads)

    kind.forward = limited  # type: ignore[method-assign]
