"""A scripted sidecar end of the local socket, around a real worker process."""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from tests.artifacts import MINILM_ID, MINILM_SOURCE
from wire.codec import encode
from wire.frames import Batch, Hello, Models, Pull, Results, SidecarFrame, WorkerFrame
from wire.jobs import EmbeddingInputs, EmbeddingOutputs, Job, Result, Task
from wire.registry import ModelRecord

Frame = TypeVar("Frame", bound=msgspec.Struct)
_decoder = msgspec.msgpack.Decoder(WorkerFrame)


def minilm_record(*, digest: str = "", pinned: bool = True, model_id: str = MINILM_ID) -> ModelRecord:
    """The record of MiniLM as the control plane would write it."""
    return ModelRecord(
        id=model_id,
        digest=digest,
        source=MINILM_SOURCE,
        tasks=[Task.EMBEDDINGS],
        pool="default",
        max_tokens=256,
        dimension=384,
        created=0,
        pinned=pinned,
    )


def make_job(
    texts: list[str],
    *,
    adapter: str | None = None,
    model: str = MINILM_ID,
    seconds: float = 60.0,
    truncate: bool = True,
    estimate: int | None = None,
) -> Job:
    """A job that expires ``seconds`` from now."""
    return Job(
        id=uuid.uuid4().hex,
        task=Task.EMBEDDINGS,
        pool="default",
        model=model,
        model_digest="",
        inputs=EmbeddingInputs(texts=texts, truncate=truncate),
        tenant="team",
        token_estimate=estimate if estimate is not None else sum(len(text) // 4 + 2 for text in texts),
        deadline=time.time() + seconds,
        published=time.time(),
        reply="reply",
        adapter_digest=adapter,
    )


def vectors_of(result: Result) -> NDArray[np.float32]:
    """A result's vectors (rows, dimension)."""
    assert isinstance(result.outputs, EmbeddingOutputs), result.error
    return np.frombuffer(result.outputs.vectors, dtype="<f4").reshape(-1, result.outputs.dimension)


@dataclass
class SidecarEnd:
    """Listens, keeps every frame a worker sent, and sends what the test wants."""

    path: Path
    frames: list[WorkerFrame] = field(default_factory=list)
    results: dict[str, Result] = field(default_factory=dict)
    sent_tokens: int = 0
    parts: list[Result] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._connections: queue.Queue[socket.socket] = queue.Queue()
        self._connection: socket.socket | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def accept(self, *, timeout_s: float = 60.0) -> Hello:
        """Wait for a worker's connection and its hello; frames of an earlier connection are forgotten."""
        self._connection = self._connections.get(timeout=timeout_s)
        with self._changed:
            self.frames.clear()
            self.results.clear()
            self.parts.clear()
            self.sent_tokens = 0
        threading.Thread(target=self._read, args=(self._connection,), daemon=True).start()
        return self.wait_frame(Hello, timeout_s=timeout_s)

    def send(self, frame: SidecarFrame) -> None:
        """Send one frame."""
        assert self._connection is not None
        data = encode(frame)
        self._connection.sendall(len(data).to_bytes(4, "big") + data)

    def start(self, *records: ModelRecord) -> Pull:
        """Send the pool's models and wait for the first credit."""
        self.send(Models(models=list(records)))
        return self.wait_frame(Pull)

    def submit(self, *jobs: Job, artifacts: dict[str, str] | None = None) -> None:
        """Send jobs as one batch frame, whatever the credit."""
        self.sent_tokens += sum(job.token_estimate for job in jobs)
        self.send(Batch(jobs=list(jobs), artifacts=artifacts or {}))

    def answers(self, *jobs: Job, timeout_s: float = 60.0) -> list[Result]:
        """Wait for the results of ``jobs``, in their order."""
        self.wait(lambda: all(job.id in self.results for job in jobs), timeout_s=timeout_s)
        return [self.results[job.id] for job in jobs]

    def wait_frame(
        self, kind: type[Frame], accept: Callable[[Frame], bool] = lambda frame: True, *, timeout_s: float = 60.0
    ) -> Frame:
        """Wait for a frame of ``kind`` that ``accept`` likes; the newest of them."""
        self.wait(lambda: self._newest(kind, accept) is not None, timeout_s=timeout_s)
        found = self._newest(kind, accept)
        assert found is not None
        return found

    def forget(self) -> None:
        """Forget frames seen so far, so that a wait means new ones."""
        with self._changed:
            self.frames.clear()

    def wait(self, condition: Callable[[], bool], *, timeout_s: float = 60.0) -> None:
        """Wait until ``condition`` holds."""
        with self._changed:
            if not self._changed.wait_for(condition, timeout=timeout_s):
                raise TimeoutError(f"not seen within {timeout_s} s; newest frames: {self.frames[-5:]}")

    def limit_tokens(self) -> int:
        """The present credit."""
        return max(frame.limit_tokens for frame in self.frames if isinstance(frame, Pull))

    def drop_connection(self) -> None:
        """Close the connection as a sidecar that dies does."""
        assert self._connection is not None
        self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def close(self) -> None:
        self._listener.close()

    def _newest(self, kind: type[Frame], accept: Callable[[Frame], bool]) -> Frame | None:
        return next((frame for frame in reversed(self.frames) if isinstance(frame, kind) and accept(frame)), None)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.put(connection)

    def _read(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        try:
            while head := stream.read(4):
                frame = _decoder.decode(stream.read(int.from_bytes(head, "big")))
                with self._changed:
                    if connection is self._connection:
                        self.frames.append(frame)
                        if isinstance(frame, Results):
                            self.results.update({result.job: result for result in frame.results if result.final})
                            self.parts += [result for result in frame.results if not result.final]
                    self._changed.notify_all()
        except OSError:
            return


def start_worker(end: SidecarEnd, **settings: str) -> subprocess.Popen[bytes]:
    """A real worker process that connects to ``end``."""
    environment = {
        **os.environ,
        "SHOAL_SOCKET": str(end.path),
        "SHOAL_TORCH_THREADS": "1",
        "SHOAL_WORKER_ID": "cpu",
        "HF_HUB_OFFLINE": "1",
        **{f"SHOAL_{name.upper()}": value for name, value in settings.items()},
    }
    return subprocess.Popen([sys.executable, "-m", "workers"], env=environment)
