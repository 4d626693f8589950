"""The smallest worker that conforms: its vectors are hashes. A start for a worker in another language."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import struct
import sys
import time
from pathlib import Path

from sidecar.conformance.player import WorkerPlayer
from wire import frames
from wire.errors import Code, ErrorInfo
from wire.jobs import EmbeddingInputs, EmbeddingOutputs, Job, Result

ROOM_TOKENS = 4096
RECONNECT_S = 0.1


class ExampleWorker:
    """One connection after the other until SIGTERM."""

    def __init__(self, socket: Path, name: str) -> None:
        self._socket = socket
        self._name = name
        self._dimensions: dict[str, int] = {}
        self._limit_tokens = 0

    async def run(self) -> None:
        """Serve until SIGTERM, then say goodbye."""
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        while not stop.is_set():
            try:
                player = await WorkerPlayer.connect(self._socket)
            except OSError:
                await asyncio.sleep(RECONNECT_S)
                continue
            await self._serve(player, stop)

    async def _serve(self, player: WorkerPlayer, stop: asyncio.Event) -> None:
        player.hello(self._name)
        self._limit_tokens = ROOM_TOKENS
        stopped = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                reading = asyncio.create_task(player.receive())
                await asyncio.wait({reading, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if stop.is_set():
                    reading.cancel()
                    player.send(frames.Goodbye(unstarted=[], reason="stopped"))
                    await asyncio.sleep(RECONNECT_S)
                    return
                frame = reading.result()
                if frame is None:
                    return
                self._take(player, frame)
        finally:
            stopped.cancel()
            await player.close()

    def _take(self, player: WorkerPlayer, frame: frames.SidecarFrame) -> None:
        match frame:
            case frames.Models():
                self._dimensions = {one.id: one.dimension or 1 for one in frame.models}
                self._pull(player)
            case frames.Batch():
                player.send(frames.Progress(running=[job.id for job in frame.jobs]))
                player.send(frames.Results(results=[self._answer(job, frame.artifacts) for job in frame.jobs]))
                self._limit_tokens += sum(max(1, job.token_estimate) for job in frame.jobs)
                self._pull(player)
            case frames.Ensure():
                error = None if Path(frame.path).is_file() else _missing(frame.digest)
                player.send(frames.Ensured(digest=frame.digest, error=error))
            case frames.Pin() | frames.Evict():
                player.send(frames.Ensured(digest=frame.digest))
            case frames.Cancel() | frames.Drain() | frames.Refused():
                # Batches are answered as they come: nothing waits here that could be dropped.
                pass

    def _pull(self, player: WorkerPlayer) -> None:
        player.send(frames.Pull(limit_tokens=self._limit_tokens, models=list(self._dimensions)))

    def _answer(self, job: Job, artifacts: dict[str, str]) -> Result:
        if job.deadline <= time.time():
            return _failed(job, ErrorInfo(Code.DEADLINE_EXCEEDED, "The deadline passed before the job began."))
        digest = job.adapter_digest
        if digest is not None and not Path(artifacts.get(digest, "")).is_file():
            return _failed(job, _missing(digest))
        texts = job.inputs.texts if isinstance(job.inputs, EmbeddingInputs) else []
        dimension = self._dimensions[job.model]
        vectors = b"".join(_vector(f"{digest}:{text}", dimension) for text in texts)
        outputs = EmbeddingOutputs(dimension, vectors, tokens=sum(len(text.split()) for text in texts))
        return Result(
            job=job.id, model_digest=job.model_digest, adapter_digest=digest, outputs=outputs, worker=self._name
        )


def _vector(text: str, dimension: int) -> bytes:
    seed = hashlib.sha256(text.encode()).digest()
    return struct.pack(f"<{dimension}f", *(seed[at % len(seed)] / 255 for at in range(dimension)))


def _missing(digest: str) -> ErrorInfo:
    return ErrorInfo(Code.ARTIFACT_UNAVAILABLE, f"The file of adapter {digest} is not there.")


def _failed(job: Job, error: ErrorInfo) -> Result:
    return Result(job=job.id, model_digest=job.model_digest, adapter_digest=job.adapter_digest, error=error)


if __name__ == "__main__":
    name = os.environ.get("SHOAL_WORKER_ID", "example")
    asyncio.run(ExampleWorker(Path(os.environ["SHOAL_SOCKET"]), name).run())
    sys.exit(0)
