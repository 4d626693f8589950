"""Queue and payload store at their bounds: refused with the bound's name, nobody waits longer than the deadline."""

from __future__ import annotations

import asyncio
import json
import struct
import time
from contextlib import suppress
from urllib.parse import urlsplit

import msgspec
import pytest
from nats.js.errors import APIError

from fabric.kv import put_record
from gateway import answers, dispatch
from tests.integration.gateway.stand import BASE, BASE_RECORD, SECRET, Stand, result_of, running_stand
from tests.integration.gateway.waiting import until
from wire import subjects
from wire.jobs import EmbeddingInputs, EmbeddingOutputs, Job, Result


async def test_queue_full(nats_url: str) -> None:
    async with running_stand(nats_url, queue_max_messages=11) as stand:
        stand.consumer.paused = True
        await asyncio.sleep(0.5)
        stand.client.headers["x-shoal-timeout-ms"] = "2500"
        answers = await asyncio.gather(*(stand.embed() for _ in range(12)))
        assert sorted(answer.status_code for answer in answers) == [429] * 7 + [504] * 5
        full = next(answer for answer in answers if answer.status_code == 429)
        assert full.json()["error"]["code"] == "queue_full"
        assert f"5 jobs of {BASE} wait" in full.json()["error"]["message"]
        assert full.headers["retry-after"] == "1"


async def test_a_model_without_workers_leaves_room_for_others(nats_url: str) -> None:
    async with running_stand(nats_url, queue_max_messages=20) as stand:
        nobodys = subjects.work("default", "nobodys")
        for number in range(10):
            await stand.js.publish(nobodys, b"waits", headers={"Nats-Msg-Id": str(number)})
        with pytest.raises(APIError, match="per subject"):
            await stand.js.publish(nobodys, b"one too many")
        assert (await stand.embed()).status_code == 200


async def test_a_store_for_large_inputs_that_hangs_costs_no_more_than_the_deadline(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: object) -> str:
        await asyncio.sleep(20)
        return "never"

    monkeypatch.setattr(dispatch, "put_payload", hang)
    started = time.monotonic()
    answer = await stand.client.post(
        "/v1/embeddings", json={"model": BASE, "input": ["x" * 1000] * 700}, headers={"x-shoal-timeout-ms": "700"}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_exceeded")
    assert "700 ms" in answer.json()["error"]["message"]
    assert time.monotonic() - started < 10


async def test_an_answer_does_not_wait_for_the_removal_of_its_inputs(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: object) -> None:
        await asyncio.sleep(20)

    monkeypatch.setattr(dispatch, "delete_payload", hang)
    started = time.monotonic()
    assert (await stand.embed(input=["x" * 1000] * 700)).status_code == 200
    assert time.monotonic() - started < 10


async def test_queue_full_by_bytes(nats_url: str) -> None:
    async with running_stand(nats_url, queue_max_bytes=200_000) as stand:
        stand.consumer.paused = True
        await asyncio.sleep(0.5)
        stand.client.headers["x-shoal-timeout-ms"] = "2000"
        answers = await asyncio.gather(*(stand.embed(input="x" * 90_000) for _ in range(4)))
        assert sorted(answer.status_code for answer in answers) == [429, 429, 504, 504]
        full = next(answer for answer in answers if answer.status_code == 429)
        assert "200000 bytes" in full.json()["error"]["message"]


async def test_answers_that_nobody_reads_count_as_in_flight_and_end(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "WRITE_TIMEOUT_S", 1.0)
    rows, dimension = 300, 4096

    def wide(job: Job, inputs: EmbeddingInputs) -> list[Result]:
        count = len(inputs.texts)
        outputs = EmbeddingOutputs(
            dimension=dimension, vectors=struct.pack("<f", 0.1) * dimension * count, tokens=count
        )
        return [result_of(job, outputs, rows=count)]

    stand.consumer.respond = wide
    model = msgspec.structs.replace(BASE_RECORD, dimension=dimension)
    await put_record(stand.js, subjects.MODELS_BUCKET, BASE, model)
    await until(lambda: stand.gateway.plane().models.records[BASE] == model)
    address = urlsplit(stand.url)
    body = json.dumps({"model": BASE, "input": ["x"] * rows}).encode()
    head = f"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {SECRET}\r\n"
    reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=1024)
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    await until(lambda: len(stand.consumer.jobs) == 7)
    await until(lambda: stand.gateway.limits.in_flight == 1)
    await asyncio.sleep(0.5)
    assert stand.gateway.limits.in_flight == 1
    await until(lambda: stand.gateway.limits.in_flight == 0)
    answered = await reader.readuntil(b"\r\n\r\n")
    length = int(answered.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    received = 0
    with suppress(ConnectionError):
        while part := await reader.read(1 << 20):
            received += len(part)
    assert received < length
    writer.close()
    assert (await stand.client.get("/readyz")).status_code == 200
