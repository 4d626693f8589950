"""A gateway on a real nats-server with a scripted consumer in place of sidecar and worker."""

from __future__ import annotations

import asyncio
import hashlib
import json
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import httpx
import nats.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.errors import APIError

from fabric.connection import Connection, connect
from fabric.kv import put_record
from fabric.payloads import get_payload
from fabric.tasks import end_task
from fabric.topology import QueueSettings, ensure_buckets, ensure_consumer, ensure_streams
from gateway.plane import Gateway
from gateway.serve import build_server, serve
from gateway.settings import GatewaySettings
from tests.integration.gateway.waiting import until
from wire import codec, subjects
from wire.jobs import EmbeddingInputs, EmbeddingOutputs, InputsReference, Job, Presence, Result, Task
from wire.registry import AdapterRecord, KeyRecord, ModelRecord, Scope, VersionRecord

BASE = "sentence-transformers/all-MiniLM-L6-v2"
POOL = "default"
DIMENSION = 4
SECRET = "shoal_test_secret"
OTHER_SECRET = "shoal_other_team"
BASE_RECORD = ModelRecord(
    id=BASE,
    digest="b" * 64,
    source="package:none",
    tasks=[Task.EMBEDDINGS],
    pool=POOL,
    max_tokens=256,
    dimension=DIMENSION,
    created=1_700_000_000,
)
VERSIONS = {
    number: VersionRecord(number=number, digest=f"{number}" * 64, size_bytes=10, rank=8, created=1_700_000_000 + number)
    for number in (1, 2, 3)
}
SUPPORT = AdapterRecord(
    name="acme/support",
    team="acme",
    base_model=BASE,
    versions=VERSIONS,
    aliases={"live": {3: 1}, "canary": {2: 50, 3: 50}, "lost": {9: 1}},
)
SECRET_ADAPTER = AdapterRecord(
    name="other/support", team="other", base_model=BASE, versions=VERSIONS, aliases={"live": {1: 1}}
)


def key_name(secret: str) -> str:
    """Name of a key's record."""
    return hashlib.sha256(secret.encode()).hexdigest()


def vector(text: str, digest: str | None) -> list[float]:
    """The vector that the scripted worker gives ``text`` under a version: float32 values, repeatable."""
    raw = hashlib.sha256(f"{digest}|{text}".encode()).digest()
    packed = struct.pack("<4f", *(byte / 7 for byte in raw[:DIMENSION]))
    return list(struct.unpack("<4f", packed))


def answer_to(job: Job, inputs: EmbeddingInputs) -> Result:
    """A worker's right answer."""
    floats = [number for text in inputs.texts for number in vector(text, job.adapter_digest)]
    return Result(
        job=job.id,
        model_digest=job.model_digest,
        adapter_digest=job.adapter_digest,
        outputs=EmbeddingOutputs(
            dimension=DIMENSION,
            vectors=struct.pack(f"<{len(floats)}f", *floats),
            tokens=len(inputs.texts) * 3,
            truncated=sum(len(text) > 1000 for text in inputs.texts) if inputs.truncate else 0,
        ),
        batch_rows=len(inputs.texts),
        queue_ms=1.5,
        worker="scripted",
    )


@dataclass
class Consumer:
    """Pulls jobs and answers them with ``respond`` (``None``: no answer, the job is acked all the same)."""

    connection: Connection
    settings: QueueSettings
    respond: Callable[[Job, EmbeddingInputs], Result | None] = answer_to
    jobs: list[Job] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    paused: bool = False

    async def run(self) -> None:
        """Work until cancelled; survives restarts of the server."""
        js = self.connection.jetstream()
        inbox = self.connection.new_inbox()
        await self.connection.subscribe(inbox, cb=self.take)
        await self.connection.subscribe(subjects.CANCEL_ALL, cb=self._take_cancel)
        while True:
            with suppress(nats.errors.Error, APIError, TimeoutError):
                if self.connection.is_connected:
                    await self._announce()
                    if not self.paused:
                        durable = await ensure_consumer(js, POOL, BASE, self.settings)
                        await self.connection.publish(
                            f"$JS.API.CONSUMER.MSG.NEXT.{subjects.WORK_STREAM}.{durable}",
                            json.dumps({"batch": 200, "expires": 180_000_000}).encode(),
                            reply=inbox,
                        )
            await asyncio.sleep(0.2)

    async def _announce(self) -> None:
        presence = Presence(machine="m", pool=POOL, models=[BASE], workers=1, at=time.time())
        await self.connection.publish(subjects.presence("m"), codec.encode(presence))

    async def take(self, msg: Msg) -> None:
        """Answer one job, then ack it."""
        if not msg.data:
            return
        job = codec.decode(msg.data, Job)
        self.jobs.append(job)
        inputs = job.inputs
        if isinstance(inputs, InputsReference):
            inputs = codec.decode(await get_payload(self.connection.jetstream(), inputs.name), EmbeddingInputs)
        assert isinstance(inputs, EmbeddingInputs)
        result = self.respond(job, inputs)
        if result is not None:
            await self.connection.publish(job.reply, codec.encode(result))
        await self.connection.publish(msg.reply, b"+ACK")

    async def _take_cancel(self, msg: Msg) -> None:
        self.cancelled.append(msg.subject.partition(".")[2])


@dataclass
class Stand:
    """Everything a test needs to talk to."""

    url: str
    client: httpx.AsyncClient
    gateway: Gateway
    consumer: Consumer
    connection: Connection

    @property
    def js(self) -> JetStreamContext:
        """JetStream as the control plane sees it."""
        return self.connection.jetstream()

    async def embed(self, **body: object) -> httpx.Response:
        """POST an embeddings request with the team's key."""
        return await self.client.post("/v1/embeddings", json={"model": BASE, "input": "hello", **body})

    async def put_key(self, secret: str, record: KeyRecord) -> None:
        """Store a key and wait until the gateway knows it."""
        await put_record(self.js, subjects.KEYS_BUCKET, key_name(secret), record)
        await until(lambda: self.gateway.plane().keys.records.get(key_name(secret)) == record)

    async def waiting_messages(self) -> int:
        """Messages in the work stream."""
        return int((await self.js.stream_info(subjects.WORK_STREAM)).state.messages)


async def register(js: JetStreamContext, settings: QueueSettings) -> None:
    """Write the records that the control plane would write."""
    await ensure_streams(js, settings)
    await ensure_buckets(js, settings)
    await put_record(js, subjects.MODELS_BUCKET, BASE, BASE_RECORD)
    await put_record(js, subjects.ADAPTERS_BUCKET, SUPPORT.name, SUPPORT)
    await put_record(js, subjects.ADAPTERS_BUCKET, SECRET_ADAPTER.name, SECRET_ADAPTER)
    await put_record(js, subjects.KEYS_BUCKET, key_name(SECRET), KeyRecord(id="k1", team="acme", scopes=[Scope.INFER]))
    await put_record(
        js, subjects.KEYS_BUCKET, key_name(OTHER_SECRET), KeyRecord(id="k2", team="other", scopes=[Scope.INFER])
    )


@asynccontextmanager
async def running_stand(nats_url: str, **changes: object) -> AsyncIterator[Stand]:
    """A gateway that is ready, its consumer, and a client with the key of team ``acme``."""
    settings = GatewaySettings.model_validate({"nats_url": nats_url, "port": 0, "shutdown_grace_s": 2, **changes})
    connection = await connect(nats_url, name="test")
    await register(connection.jetstream(), settings.queue)
    gateway = Gateway(settings)
    server = build_server(gateway)
    consumer = Consumer(await connect(nats_url, name="scripted sidecar"), settings.queue)
    tasks = [asyncio.create_task(serve(gateway, server)), asyncio.create_task(consumer.run())]
    try:
        await until(lambda: server.started and not gateway.missing())
        url = f"http://127.0.0.1:{server.ports[0]}"
        headers = {"authorization": f"Bearer {SECRET}"}
        async with httpx.AsyncClient(
            base_url=url, headers=headers, timeout=30, limits=httpx.Limits(max_connections=None)
        ) as client:
            yield Stand(url, client, gateway, consumer, connection)
    finally:
        server.should_exit = True
        await tasks[0]
        await end_task(tasks[1])
        await consumer.connection.close()
        await connection.close()
