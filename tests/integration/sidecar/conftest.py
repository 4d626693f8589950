"""A real sidecar on a real nats-server, with a small gateway that publishes and counts answers."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from nats.aio.msg import Msg
from nats.js.api import StreamInfo

from fabric.connection import Connection, connect
from fabric.kv import put_record
from fabric.topology import QueueSettings, ensure_buckets, ensure_streams
from sidecar.service import Sidecar
from sidecar.settings import SidecarSettings
from tests.integration.sidecar.scripted import ScriptedWorker
from wire import codec, subjects
from wire.jobs import EmbeddingInputs, Inputs, Job, Result, Task
from wire.registry import ModelRecord

MODEL_DIGEST = "d" * 64


async def until(condition: Callable[[], object], timeout_s: float = 20.0) -> None:
    """Return once ``condition`` holds."""
    limit = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > limit:
            raise TimeoutError("the expected state did not come")
        await asyncio.sleep(0.005)


class Bench:
    """Everything a test needs: publish jobs, read answers, start sidecars and workers."""

    def __init__(self, nats_url: str, home: Path) -> None:
        self.nats_url = nats_url
        self.home = home
        self.answers: dict[str, list[Result]] = {}
        self.answered_at: dict[str, float] = {}
        self.messages: list[Msg] = []
        self.sidecars: dict[str, tuple[Sidecar, asyncio.Task[None]]] = {}
        self.workers: list[ScriptedWorker] = []
        self.connection: Connection

    async def open(self) -> None:
        self.connection = await connect(self.nats_url, name="bench")
        self.js = self.connection.jetstream()
        await ensure_streams(self.js, QueueSettings())
        await ensure_buckets(self.js, QueueSettings())
        await self.connection.subscribe(subjects.reply_filter("bench"), cb=self._take)
        await self.put_model("model-a")

    async def put_model(self, model: str) -> None:
        record = ModelRecord(
            id=model, digest=MODEL_DIGEST, source="path:none", tasks=list(Task), pool="default",
            max_tokens=512, dimension=8, created=0,
        )  # fmt: skip
        await put_record(self.js, subjects.MODELS_BUCKET, model, record)

    async def put_version(self, model: str, digest: str) -> None:
        """Register a version with weights of its own."""
        record = ModelRecord(
            id=model, digest=digest, source="artifact:", tasks=[Task.EMBEDDINGS], pool="default", max_tokens=512,
            dimension=1, created=0, pinned=False, team="team", artifact=digest,
        )  # fmt: skip
        await put_record(self.js, subjects.MODELS_BUCKET, model, record)

    async def sidecar(self, machine: str = "m1", **changes: object) -> Path:
        """Start a sidecar; the path of its socket."""
        values: dict[str, object] = {
            "nats_url": self.nats_url,
            "machine": machine,
            "socket": self.home / f"{machine}.sock",
            "cache_dir": self.home / f"cache-{machine}",
            "drain_s": 2.0,
        }
        settings = SidecarSettings(**{**values, **changes})  # type: ignore[arg-type]
        sidecar = Sidecar(settings)
        task = asyncio.create_task(sidecar.run())
        self.sidecars[machine] = (sidecar, task)
        await until(lambda: settings.socket.exists() or task.done())
        if task.done():
            task.result()
        return settings.socket

    async def stop_sidecar(self, machine: str = "m1") -> None:
        sidecar, task = self.sidecars.pop(machine)
        sidecar.stop()
        await task

    async def worker(self, socket: Path, **options: object) -> ScriptedWorker:
        worker = ScriptedWorker(socket, **options)  # type: ignore[arg-type]
        self.workers.append(worker)
        return await worker.start()

    async def publish(
        self, *, job_id: str | None = None, model: str = "model-a", tokens: int = 10, deadline_s: float = 30.0,
        adapter: str | None = None, inputs: Inputs | None = None, task: Task = Task.EMBEDDINGS, machines: int = 1,
        tenant: str = "team",
    ) -> str:  # fmt: skip
        job_id = job_id or uuid.uuid4().hex
        now = time.time()
        job = Job(
            id=job_id, task=task, pool="default", model=model, model_digest=MODEL_DIGEST,
            inputs=inputs or EmbeddingInputs(texts=["text"]), tenant=tenant, token_estimate=tokens,
            deadline=now + deadline_s, published=now, reply=subjects.reply("bench", job_id), adapter_digest=adapter,
        )  # fmt: skip
        lane = subjects.lane_of(adapter, machines)
        await self.js.publish(
            subjects.work("default", model, lane), codec.encode(job), headers={"Nats-Msg-Id": job_id}, timeout=5
        )
        return job_id

    async def answer(self, job_id: str, timeout_s: float = 20.0) -> Result:
        await until(lambda: job_id in self.answers, timeout_s)
        return self.answers[job_id][0]

    async def work_left(self) -> int:
        info: StreamInfo = await self.js.stream_info(subjects.WORK_STREAM)
        return int(info.state.messages)

    async def expect_empty_queue(self, timeout_s: float = 5.0) -> None:
        limit = time.monotonic() + timeout_s
        while (left := await self.work_left()) and time.monotonic() < limit:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        assert left == 0

    async def close(self) -> None:
        for worker in self.workers:
            await worker.stop()
        for machine in list(self.sidecars):
            with contextlib.suppress(Exception):
                await self.stop_sidecar(machine)
        await self.connection.close()

    async def _take(self, msg: Msg) -> None:
        result = codec.decode(msg.data, Result)
        self.answers.setdefault(result.job, []).append(result)
        self.answered_at.setdefault(result.job, time.monotonic())


@dataclass
class KeptWorker:
    """Keeps one worker on ``socket``; each that gets a job that ``kills`` dies of it and has a successor."""

    bench: Bench
    socket: Path
    kills: Callable[[Job], bool]
    deaths: int = 0
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Until ``stop``."""
        while not self.stop.is_set():
            worker = await self.bench.worker(self.socket, room_tokens=80, delay_s=0.01)
            while not worker.closed.is_set() and not self.stop.is_set():
                if any(self.kills(job) for job in worker.received):
                    self.deaths += 1
                    await worker.stop()
                await asyncio.sleep(0.001)


@pytest.fixture
async def bench(nats_url: str) -> AsyncIterator[Bench]:
    # Paths of Unix sockets are short by nature; pytest's own directories are not.
    with tempfile.TemporaryDirectory(prefix="shoal-") as home:
        bench = Bench(nats_url, Path(home))
        await bench.open()
        try:
            yield bench
        finally:
            await bench.close()
