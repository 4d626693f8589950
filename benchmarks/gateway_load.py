"""Cost of the gateway alone: requests per second and CPU per request against a consumer that answers at once.

``python -m benchmarks.gateway_load [--seconds 5] [--clients 64] [--encoding float] [--json FILE]`` starts a
nats-server, a gateway process and an echo process (vectors of 384 numbers, Base64 as the OpenAI client asks unless told
otherwise), all on loopback, and sends one-text requests over kept-alive connections. The CPU time is the gateway
process's own; the client's is told beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from nats.aio.msg import Msg

from benchmarks.http_load import post, run_load
from fabric.connection import connect
from fabric.kv import put_record
from fabric.topology import QueueSettings, ensure_buckets, ensure_consumer, ensure_streams
from tests.servers import free_port, nats_server, wait_for_port
from wire import codec, subjects
from wire.jobs import EmbeddingInputs, EmbeddingOutputs, Job, Presence, Result, Task
from wire.registry import KeyRecord, ModelRecord, Scope

MODEL, POOL, SECRET, DIMENSION = "bench/echo", "default", "shoal_bench", 384
VECTOR = bytes(4 * DIMENSION)


async def echo(nats_url: str) -> None:
    """Answer every job at once, for ever."""
    connection = await connect(nats_url, name="echo")
    js = connection.jetstream()
    await ensure_streams(js, QueueSettings())
    await ensure_buckets(js, QueueSettings())
    record = ModelRecord(
        id=MODEL, digest="d", source="package:x", tasks=[Task.EMBEDDINGS], pool=POOL, max_tokens=256,
        dimension=DIMENSION, created=0,
    )  # fmt: skip
    await put_record(js, subjects.MODELS_BUCKET, MODEL, record)
    key = KeyRecord(id="k", team="bench", scopes=[Scope.INFER])
    await put_record(js, subjects.KEYS_BUCKET, hashlib.sha256(SECRET.encode()).hexdigest(), key)
    durable = await ensure_consumer(js, POOL, MODEL, QueueSettings())
    inbox = connection.new_inbox()

    async def take(msg: Msg) -> None:
        if not msg.data:
            return
        job = codec.decode(msg.data, Job)
        rows = len(job.inputs.texts) if isinstance(job.inputs, EmbeddingInputs) else 0
        outputs = EmbeddingOutputs(dimension=DIMENSION, vectors=VECTOR * rows, tokens=rows)
        result = Result(job=job.id, model_digest=job.model_digest, outputs=outputs, batch_rows=rows)
        await connection.publish(job.reply, codec.encode(result))
        await connection.publish(msg.reply, b"+ACK")

    await connection.subscribe(inbox, cb=take)
    pull = json.dumps({"batch": 5000, "expires": 400_000_000}).encode()
    while True:
        presence = Presence(machine="m", pool=POOL, models=[MODEL], workers=1, at=time.time())
        await connection.publish(subjects.presence("m"), codec.encode(presence))
        await connection.publish(f"$JS.API.CONSUMER.MSG.NEXT.WORK.{durable}", pull, reply=inbox)
        await asyncio.sleep(0.4)


@contextlib.contextmanager
def child(arguments: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A child process that ends with the block."""
    process = subprocess.Popen([sys.executable, *arguments], env=os.environ | environment)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def measure(*, clients: int, seconds: float, encoding: str) -> dict[str, float]:
    """One run; milliseconds, requests per second."""
    port = free_port()
    with tempfile.TemporaryDirectory() as home, nats_server(Path(home)) as server:
        url = f"nats://127.0.0.1:{server.port}"
        gateway_settings = {"NATS_URL": url, "SHOAL_GATEWAY_PORT": str(port), "SHOAL_LOG_LEVEL": "WARNING"}
        echo_code = f"import asyncio; from benchmarks.gateway_load import echo; asyncio.run(echo({url!r}))"
        with child(["-c", echo_code], {}), child(["-m", "gateway"], gateway_settings) as gateway:
            wait_for_port(port)
            time.sleep(3)
            body = {"model": MODEL, "input": "How do I reset the torque sensor?", "encoding_format": encoding}
            requests = itertools.repeat(post("/v1/embeddings", body, SECRET))
            run_load(port, requests, clients=clients, seconds=1)
            process = psutil.Process(gateway.pid)
            before = process.cpu_times()
            outcome = run_load(port, requests, clients=clients, seconds=seconds)
            after = process.cpu_times()
    cpu_s = after.user + after.system - before.user - before.system
    count = len(outcome.latencies)
    return {
        "clients": clients,
        "requests": count,
        "failed": sum(outcome.failures.values()),
        "requests_per_s": round(outcome.per_second, 1),
        "cpu_ms_per_request": round(1000 * cpu_s / count, 3),
        "client_cpu_ms_per_request": round(1000 * outcome.cpu_s / count, 3),
        "p50_ms": round(outcome.percentile_ms(0.5), 2),
        "p99_ms": round(outcome.percentile_ms(0.99), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--encoding", choices=("base64", "float"), default="base64")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    outcome = measure(clients=options.clients, seconds=options.seconds, encoding=options.encoding)
    print(json.dumps(outcome))
    if options.json:
        options.json.write_text(json.dumps(outcome))


if __name__ == "__main__":
    main()
