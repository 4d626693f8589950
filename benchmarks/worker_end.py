"""A real worker process driven over its socket, as a sidecar does: for benchmarks of the engine alone."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from wire.codec import encode
from wire.frames import Batch, Models, Pull, Results, SidecarFrame, Stats, WorkerFrame
from wire.jobs import EmbeddingInputs, Job, Result, Task
from wire.registry import ModelRecord
from wire.telemetry import WorkerSample

_decoder = msgspec.msgpack.Decoder(WorkerFrame)
_START_S = 120.0
_ANSWER_S = 120.0
_POLL_S = 0.5


def end_workers_on_sigterm() -> None:
    """Leave the ``with`` blocks of this process when it is told to stop, so that no worker outlives it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


class WorkerEnd:
    """One worker with its own settings (``slots="16"`` is ``SHOAL_SLOTS=16``). Ends with the ``with`` block."""

    def __init__(self, **settings: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="shoal-bench-")
        path = Path(self._folder.name) / "s"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(_POLL_S)
        environment = {
            **os.environ,
            "SHOAL_SOCKET": str(path),
            "HF_HUB_OFFLINE": "1",
            **{f"SHOAL_{name.upper()}": value for name, value in settings.items()},
        }
        self._log = (Path(self._folder.name) / "log").open("w+b")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "workers"], env=environment, stdout=self._log, stderr=self._log
        )
        self._changed = threading.Condition()
        self._arrived: dict[str, tuple[float, Result]] = {}
        self._begun: dict[str, float] = {}
        self._ready = False
        self.samples: list[WorkerSample] = []
        with listener:
            self._connection = self._accept(listener)
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> WorkerEnd:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._connection.close()
        self._log.close()
        self._folder.cleanup()

    def start(self, records: Sequence[ModelRecord]) -> None:
        """Tell the pool's models and wait until the worker gives credit."""
        self._send(Models(models=list(records)))
        with self._changed:
            if not self._changed.wait_for(lambda: self._ready, _START_S):
                raise RuntimeError(self._tail())

    def submit(self, job: Job, path: Path | None = None) -> None:
        """Send a job; ``path`` is the file of its adapter or of its model's version."""
        digest = job.adapter_digest or job.model_digest
        self._send(Batch(jobs=[job], artifacts={digest: str(path)} if path is not None else {}))

    def answer(self, job: Job) -> tuple[float, Result]:
        """The job's result and the monotonic second of its arrival."""
        with self._changed:
            if not self._changed.wait_for(lambda: job.id in self._arrived, _ANSWER_S):
                raise RuntimeError(f"no answer within {_ANSWER_S:.0f} s: {self._tail()}")
            return self._arrived.pop(job.id)

    def begun(self, job: Job) -> float:
        """The monotonic second at which the first part of an answered job arrived."""
        with self._changed:
            return self._begun.pop(job.id)

    def ask(self, job: Job, path: Path | None = None) -> float:
        """Run one job; returns its seconds. Raises ``RuntimeError`` when it fails."""
        start = time.monotonic()
        self.submit(job, path)
        end, result = self.answer(job)
        if result.error is not None:
            raise RuntimeError(result.error.message)
        return end - start

    def settle(self) -> WorkerSample:
        """The sample after the next: all that happened so far is in ``samples`` then."""
        with self._changed:
            wanted = len(self.samples) + 2
            if not self._changed.wait_for(lambda: len(self.samples) >= wanted, _START_S):
                raise RuntimeError(self._tail())
            return self.samples[-1]

    def _accept(self, listener: socket.socket) -> socket.socket:
        limit = time.monotonic() + _START_S
        while self._process.poll() is None and time.monotonic() < limit:
            with contextlib.suppress(TimeoutError):
                return listener.accept()[0]
        raise RuntimeError(f"the worker did not connect: {self._tail()}")

    def _send(self, frame: SidecarFrame) -> None:
        data = encode(frame)
        with self._changed:
            self._connection.sendall(len(data).to_bytes(4, "big") + data)

    def _read(self) -> None:
        with self._connection.makefile("rb") as stream:
            while head := stream.read(4):
                frame = _decoder.decode(stream.read(int.from_bytes(head, "big")))
                now = time.monotonic()
                with self._changed:
                    if isinstance(frame, Results):
                        for one in frame.results:
                            self._begun.setdefault(one.job, now)
                        self._arrived.update({one.job: (now, one) for one in frame.results if one.final})
                    elif isinstance(frame, Stats):
                        self.samples.append(frame.sample)
                    elif isinstance(frame, Pull):
                        self._ready = True
                    self._changed.notify_all()

    def _tail(self) -> str:
        self._log.flush()
        return (Path(self._folder.name) / "log").read_text()[-2000:]


def embedding_job(model: str, text: str, *, adapter: str | None = None, model_digest: str = "") -> Job:
    """A job with one text."""
    now = time.time()
    return Job(
        id=uuid.uuid4().hex,
        task=Task.EMBEDDINGS,
        pool="default",
        model=model,
        model_digest=model_digest,
        inputs=EmbeddingInputs(texts=[text]),
        tenant="benchmark",
        token_estimate=max(1, len(text) // 4),
        deadline=now + _ANSWER_S,
        published=now,
        reply="reply",
        adapter_digest=adapter,
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of ``values`` lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
