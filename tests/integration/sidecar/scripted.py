"""A worker that does what a test says, over the real socket."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import Callable
from pathlib import Path

from sidecar.conformance.player import WorkerPlayer
from wire import frames
from wire.jobs import EmbeddingInputs, EmbeddingOutputs, Job, Result

Answerer = Callable[[Job], Result | None]


def embed(job: Job) -> Result:
    """A right answer: one value per text, its length."""
    assert isinstance(job.inputs, EmbeddingInputs)
    values = [float(len(text)) for text in job.inputs.texts]
    outputs = EmbeddingOutputs(dimension=1, vectors=struct.pack(f"<{len(values)}f", *values), tokens=len(values))
    return Result(
        job=job.id, model_digest=job.model_digest, adapter_digest=job.adapter_digest, outputs=outputs, worker="w"
    )


class ScriptedWorker:
    """Answers batches after ``delay_s`` with ``answerer``; a job answered ``None`` stays unfinished."""

    def __init__(
        self,
        socket: Path,
        *,
        worker: str = "cpu",
        room_tokens: int = 100_000,
        delay_s: float = 0.0,
        answerer: Answerer = embed,
        models: tuple[str, ...] = ("model-a",),
        adapters: tuple[str, ...] = (),
    ) -> None:
        self.socket = socket
        self.worker = worker
        self.delay_s = delay_s
        self.answerer = answerer
        self.models = list(models)
        self.adapters = list(adapters)
        self.received: list[Job] = []
        self.received_at: list[float] = []
        self.frames: list[frames.SidecarFrame] = []
        self.batches: list[frames.Batch] = []
        self.closed = asyncio.Event()
        self.limit_tokens = room_tokens
        self._player: WorkerPlayer | None = None
        self._task: asyncio.Task[None] | None = None
        self._answers: set[asyncio.Task[None]] = set()

    @property
    def player(self) -> WorkerPlayer:
        assert self._player is not None
        return self._player

    async def start(self) -> ScriptedWorker:
        limit = time.monotonic() + 10
        while True:
            try:
                self._player = await WorkerPlayer.connect(self.socket)
                break
            except OSError:
                if time.monotonic() > limit:
                    raise
                await asyncio.sleep(0.02)
        self.player.hello(self.worker)
        self.pull()
        self._task = asyncio.create_task(self._read())
        return self

    @property
    def settled(self) -> bool:
        """Whether it has said all that it says of the batches it got."""
        return not self._answers

    def pull(self) -> None:
        self.player.send(frames.Pull(limit_tokens=self.limit_tokens, models=self.models, adapters=self.adapters))

    async def stop(self) -> None:
        for task in [*self._answers, *([self._task] if self._task else [])]:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._player is not None:
            await self._player.close()
        self.closed.set()

    async def _read(self) -> None:
        while (frame := await self.player.receive()) is not None:
            self.frames.append(frame)
            if isinstance(frame, frames.Batch):
                self.batches.append(frame)
                self.received.extend(frame.jobs)
                self.received_at.extend([time.monotonic()] * len(frame.jobs))
                task = asyncio.create_task(self._answer(frame))
                self._answers.add(task)
                task.add_done_callback(self._answers.discard)
            elif isinstance(frame, frames.Ensure | frames.Evict | frames.Pin):
                self.player.send(frames.Ensured(digest=frame.digest))
        self.closed.set()

    async def _answer(self, batch: frames.Batch) -> None:
        self.player.send(frames.Progress(running=[job.id for job in batch.jobs]))
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        answers = [(job, self.answerer(job)) for job in batch.jobs]
        done = [answer for _, answer in answers if answer is not None]
        if done:
            self.player.send(frames.Results(results=done))
            self.limit_tokens += sum(max(1, job.token_estimate) for job, answer in answers if answer is not None)
            self.pull()
