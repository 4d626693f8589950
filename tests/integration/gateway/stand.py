"""A gateway on a real nats-server with a scripted consumer in place of sidecar and worker."""

from __future__ import annotations

import asyncio
import hashlib
import json
import struct
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec
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
from wire.jobs import (
    ClassifyInputs,
    ClassifyOutputs,
    EmbeddingInputs,
    EmbeddingOutputs,
    Entity,
    GenerateInputs,
    GenerateOutputs,
    InputsReference,
    Job,
    Outputs,
    Presence,
    RerankInputs,
    RerankOutputs,
    Result,
    Task,
    TaskInputs,
    TokenClassifyOutputs,
    TokenLogprob,
)
from wire.registry import AdapterRecord, KeyRecord, Mode, ModelRecord, Scope, VersionRecord

BASE = "sentence-transformers/all-MiniLM-L6-v2"
POOL = "default"
DIMENSION = 4
SECRET = "shoal_test_secret"
OTHER_SECRET = "shoal_other_team"
BASE_RECORD = ModelRecord(
    id=BASE,
    digest="b" * 64,
    source="package:none",
    tasks=[Task.EMBEDDINGS, Task.RERANK],
    pool=POOL,
    max_tokens=256,
    dimension=DIMENSION,
    created=1_700_000_000,
)
CHAT = "HuggingFaceTB/SmolLM2-135M-Instruct"
CHAT_RECORD = ModelRecord(
    id=CHAT,
    digest="c" * 64,
    source="package:none",
    tasks=[Task.GENERATE],
    pool=POOL,
    max_tokens=2048,
    dimension=None,
    created=1_700_000_000,
)
TAGS = AdapterRecord(
    name="acme/tags",
    team="acme",
    base_model=BASE,
    versions={
        1: VersionRecord(number=1, digest="d" * 64, size_bytes=10, rank=8, tasks=[Task.CLASSIFY]),
        2: VersionRecord(number=2, digest="e" * 64, size_bytes=10, rank=8, tasks=[Task.TOKEN_CLASSIFY]),
        3: VersionRecord(number=3, digest="f" * 64, size_bytes=10, rank=0, mode=Mode.FULL, tasks=[Task.CLASSIFY]),
    },
    aliases={"live": {1: 1}, "spans": {2: 1}, "whole": {3: 1}},
)
WHOLE_RECORD = ModelRecord(
    id="acme/tags@3",
    digest="f" * 64,
    source="artifact:",
    tasks=[Task.CLASSIFY],
    pool=POOL,
    max_tokens=256,
    dimension=None,
    created=1_700_000_000,
    pinned=False,
    team="acme",
    artifact="f" * 64,
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
MODELS = (BASE_RECORD, CHAT_RECORD, WHOLE_RECORD)
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


def outputs_to(job: Job, inputs: TaskInputs) -> Outputs:
    """A worker's right outputs, but of generated text."""
    if isinstance(inputs, EmbeddingInputs):
        floats = [number for text in inputs.texts for number in vector(text, job.adapter_digest)]
        return EmbeddingOutputs(
            dimension=DIMENSION,
            vectors=struct.pack(f"<{len(floats)}f", *floats),
            tokens=len(inputs.texts) * 3,
            truncated=sum(len(text) > 1000 for text in inputs.texts) if inputs.truncate else 0,
        )
    if isinstance(inputs, RerankInputs):
        return RerankOutputs(scores=[len(text) / 10 for text in inputs.documents], tokens=5 * len(inputs.documents))
    assert isinstance(inputs, ClassifyInputs)
    if job.task is Task.TOKEN_CLASSIFY:
        spans = [[Entity("WORD", 0.5, 0, len(text.split()[0]))] for text in inputs.texts]
        return TokenClassifyOutputs(entities=spans, labels=["WORD"], tokens=4 * len(inputs.texts))
    scores = [[0.25, 0.75] if "good" in text else [0.75, 0.25] for text in inputs.texts]
    return ClassifyOutputs(labels=["bad", "good"], scores=scores, tokens=4 * len(inputs.texts))


def answer_to(job: Job, inputs: TaskInputs) -> list[Result]:
    """A worker's right answer; generated text repeats the prompt's words, one a part where it streams."""
    if not isinstance(inputs, GenerateInputs):
        rows = len(inputs.texts) if isinstance(inputs, EmbeddingInputs | ClassifyInputs) else len(inputs.documents)
        return [result_of(job, outputs_to(job, inputs), rows=rows)]
    return text_parts(job, inputs)


def text_parts(job: Job, inputs: GenerateInputs) -> list[Result]:
    """The prompt's words, as parts or whole."""
    words = (inputs.prompt or inputs.messages[-1].content).split()
    pieces = [word if number == 0 else f" {word}" for number, word in enumerate(words)]
    if not inputs.stream:
        pieces = ["".join(pieces)]
    results = []
    for number, piece in enumerate(pieces):
        final = number == len(pieces) - 1
        outputs = GenerateOutputs(
            text=piece,
            logprobs=[TokenLogprob(piece, -0.5, [(piece, -0.5)])] if inputs.sampling.logprobs is not None else [],
            finish_reason="stop" if final else None,
            prompt_tokens=7 if final else 0,
            completion_tokens=len(words) if final else 0,
            cached_tokens=2 if final else 0,
        )
        results.append(msgspec.structs.replace(result_of(job, outputs), number=number, final=final))
    return results


def result_of(job: Job, outputs: Outputs, *, rows: int = 1) -> Result:
    """``outputs`` as a worker sends them."""
    return Result(
        job=job.id,
        model_digest=job.model_digest,
        adapter_digest=job.adapter_digest,
        outputs=outputs,
        batch_rows=rows,
        queue_ms=1.5,
        worker="scripted",
    )


@dataclass
class Consumer:
    """Pulls jobs and answers them with ``respond`` (nothing: no answer, the job is acked all the same)."""

    connection: Connection
    settings: QueueSettings
    respond: Callable[[Job, Any], Sequence[Result]] = answer_to
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
                        for model in MODELS:
                            durable = await ensure_consumer(js, POOL, model.id, self.settings)
                            await self.connection.publish(
                                f"$JS.API.CONSUMER.MSG.NEXT.{subjects.WORK_STREAM}.{durable}",
                                json.dumps({"batch": 200, "expires": 180_000_000}).encode(),
                                reply=inbox,
                            )
            await asyncio.sleep(0.2)

    async def _announce(self) -> None:
        models = [model.id for model in MODELS]
        presence = Presence(machine="m", pool=POOL, models=models, workers=1, at=time.time())
        await self.connection.publish(subjects.presence("m"), codec.encode(presence))

    async def take(self, msg: Msg) -> None:
        """Answer one job, then ack it."""
        if not msg.data:
            return
        job = codec.decode(msg.data, Job)
        self.jobs.append(job)
        inputs = job.inputs
        if isinstance(inputs, InputsReference):
            stored = await get_payload(self.connection.jetstream(), inputs.name)
            # mypy knows no union as a type of types.
            inputs = codec.decode(stored, TaskInputs)  # type: ignore[arg-type]
        for result in self.respond(job, inputs):
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

    async def post(self, path: str, **body: object) -> httpx.Response:
        """POST any request with the team's key."""
        return await self.client.post(f"/v1/{path}", json=body)

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
    for model in MODELS:
        await put_record(js, subjects.MODELS_BUCKET, model.id, model)
    for adapter in (SUPPORT, TAGS, SECRET_ADAPTER):
        await put_record(js, subjects.ADAPTERS_BUCKET, adapter.name, adapter)
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
