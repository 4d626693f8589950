"""What happens when parts fail under the gateway: truthful codes, nothing lost, nothing stuck."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from urllib.parse import urlsplit

import httpx
import msgspec

from fabric.connection import connect
from fabric.kv import delete_record
from gateway.plane import Gateway
from gateway.serve import build_server, serve
from gateway.settings import GatewaySettings
from tests.integration.gateway.stand import BASE, SECRET, Stand, answer_to, key_name, register, running_stand, vector
from tests.integration.gateway.waiting import until, until_async
from tests.servers import ServerProcess, free_port
from wire import codec, subjects
from wire.errors import Code, ErrorInfo
from wire.jobs import EmbeddingInputs, Job, Result
from wire.registry import KeyRecord, Scope


def silent(job: Job, inputs: EmbeddingInputs) -> list[Result]:
    """A worker that never answers."""
    return []


async def test_server_killed_in_flight_loses_nothing(nats: ServerProcess, nats_url: str) -> None:
    async with running_stand(nats_url) as stand:
        stand.consumer.paused = True
        await asyncio.sleep(0.5)
        texts = [f"text {number}" for number in range(200)]
        before = [asyncio.create_task(stand.embed(input=text)) for text in texts[:100]]
        await until(lambda: stand.gateway.metrics.published._value.get() == 100)
        await asyncio.to_thread(nats.stop, with_signal=signal.SIGKILL)
        during = [asyncio.create_task(stand.embed(input=text)) for text in texts[100:]]
        await asyncio.sleep(0.5)
        await asyncio.to_thread(nats.start)
        stand.consumer.paused = False
        answers = await asyncio.gather(*before, *during)
        assert [answer.status_code for answer in answers] == [200] * 200
        got = [answer.json()["data"][0]["embedding"] for answer in answers]
        assert got == [vector(text, None) for text in texts]
        assert stand.gateway.metrics.republished._value.get() >= 100


async def test_reply_lost_while_the_connection_was_away(nats: ServerProcess, nats_url: str) -> None:
    """On file storage the job survives; its answer may have been sent to nobody."""
    async with running_stand(nats_url, queue_storage="file") as stand:
        stand.consumer.respond = silent
        waiting = asyncio.create_task(stand.embed(input="lost answer"))
        await until(lambda: len(stand.consumer.jobs) == 1)
        stand.consumer.respond = answer_to
        await asyncio.to_thread(nats.restart)
        answer = await waiting
        assert answer.json()["data"][0]["embedding"] == vector("lost answer", None)
        assert len({job.id for job in stand.consumer.jobs}) == 1


async def test_stream_deleted_under_a_live_connection(stand: Stand) -> None:
    await stand.js.delete_stream(subjects.WORK_STREAM)
    answer = await stand.embed(input="x")
    assert answer.status_code == 200


async def test_no_server(nats: ServerProcess, nats_url: str) -> None:
    async with running_stand(nats_url, publish_timeout_s=0.5) as stand:
        await asyncio.to_thread(nats.stop)
        await until(lambda: not stand.gateway._plane.connection.is_connected)  # type: ignore[union-attr]
        answer = await stand.embed()
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "queue_unavailable"
        assert answer.headers["retry-after"]
        ready = await stand.client.get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["reasons"] == ["not connected to NATS"]
        assert (await stand.client.get("/healthz")).status_code == 200
        await asyncio.to_thread(nats.start)
        await until(lambda: not stand.gateway.missing())
        assert (await stand.embed()).status_code == 200


async def test_started_before_the_server(nats: ServerProcess, nats_url: str) -> None:
    await asyncio.to_thread(nats.stop)
    gateway = Gateway(GatewaySettings.model_validate({"nats_url": nats_url, "port": 0}))
    server = build_server(gateway)
    serving = asyncio.create_task(serve(gateway, server))
    await until(lambda: server.started)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.ports[0]}") as client:
        ready = await client.get("/readyz")
        assert ready.status_code == 503
        assert "NATS has not answered" in ready.json()["reasons"][0]
        refused = await client.post("/v1/embeddings", headers={"authorization": "Bearer x"}, json={})
        assert refused.json()["error"]["code"] == "queue_unavailable"
        await asyncio.to_thread(nats.start)
        control_plane = await connect(nats_url, name="control plane")
        await register(control_plane.jetstream(), gateway.settings.queue)
        await until(lambda: not gateway.missing())
        assert (await client.get("/readyz")).status_code == 200
        await control_plane.close()
    server.should_exit = True
    await serving


async def test_no_worker(nats_url: str) -> None:
    async with running_stand(nats_url, no_worker_s=0.3) as stand:
        await until(lambda: bool(stand.gateway.plane().presence._seen))
        assert (await stand.embed()).status_code == 200
        stand.consumer._announce = nobody  # type: ignore[method-assign]
        stand.gateway.plane().presence._listening_since -= 10
        await asyncio.sleep(0.7)
        answer = await stand.embed()
        assert answer.status_code == 503
        error = answer.json()["error"]
        assert error["code"] == "no_worker"
        assert "s ago" in error["message"]
        assert await stand.waiting_messages() == 0


async def nobody() -> None:
    """No sidecar announces itself."""


async def test_deadline_cancels_the_job(stand: Stand) -> None:
    stand.consumer.respond = silent
    began = time.monotonic()
    answer = await stand.client.post(
        "/v1/embeddings", json={"model": BASE, "input": "x"}, headers={"x-shoal-timeout-ms": "400"}
    )
    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "deadline_exceeded"
    assert "400 ms" in answer.json()["error"]["message"]
    assert time.monotonic() - began < 10
    await until(lambda: stand.consumer.cancelled == [stand.consumer.jobs[0].id])


async def test_client_that_leaves_cancels_its_job(stand: Stand) -> None:
    stand.consumer.respond = silent
    address = urlsplit(stand.url)
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    body = json.dumps({"model": BASE, "input": "x"}).encode()
    writer.write(
        f"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {SECRET}\r\n"
        f"content-length: {len(body)}\r\n\r\n".encode()
        + body
    )
    await until(lambda: len(stand.consumer.jobs) == 1)
    writer.close()
    await until(lambda: stand.consumer.cancelled == [stand.consumer.jobs[0].id])
    await until(lambda: stand.gateway.limits.in_flight == 0)
    assert stand.gateway.plane().queue._waiters == {}


async def test_answer_of_another_version_is_never_given_out(stand: Stand) -> None:
    stand.consumer.respond = lambda job, inputs: [
        msgspec.structs.replace(result, adapter_digest=None) for result in answer_to(job, inputs)
    ]
    answer = await stand.embed(model="acme/support")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal_error"
    assert "data" not in answer.json()
    metrics = (await stand.client.get("/metrics")).text
    assert "shoal_gateway_digest_mismatches_total 1.0" in metrics


async def test_answer_of_wrong_size_is_never_given_out(stand: Stand) -> None:
    def short(job: Job, inputs: EmbeddingInputs) -> list[Result]:
        return answer_to(job, EmbeddingInputs(texts=inputs.texts[:1]))

    stand.consumer.respond = short
    answer = await stand.embed(input=["a", "b"])
    assert answer.status_code == 500


async def test_worker_errors_keep_their_code(stand: Stand) -> None:
    for code, status in ((Code.ADAPTER_UNLOADABLE, 500), (Code.OUT_OF_MEMORY, 503), (Code.INPUT_TOO_LONG, 400)):
        error = ErrorInfo(code, "The reason.", hint="The next step.")
        stand.consumer.respond = lambda job, inputs, error=error: [Result(job=job.id, error=error)]  # type: ignore[misc]
        answer = await stand.embed()
        assert answer.status_code == status
        assert answer.json()["error"]["code"] == code
        assert answer.json()["error"]["message"] == "The reason. The next step."
        assert ("retry-after" in answer.headers) == (status == 503)


async def test_second_answer_is_dropped(stand: Stand) -> None:
    def twice(job: Job, inputs: EmbeddingInputs) -> list[Result]:
        (result,) = answer_to(job, inputs)
        late = msgspec.structs.replace(result, batch_rows=99)
        asyncio.get_running_loop().create_task(publish_later(job.reply, codec.encode(late)))
        return [result]

    async def publish_later(subject: str, data: bytes) -> None:
        await asyncio.sleep(0.1)
        await stand.connection.publish(subject, data)

    stand.consumer.respond = twice
    answer = await stand.embed()
    assert answer.headers["x-shoal-batch-size"] == "1"
    await until(lambda: stand.gateway.metrics.late_replies._value.get() == 1)


async def test_revoked_key_ends_within_a_second(stand: Stand) -> None:
    await stand.put_key("short-lived", KeyRecord(id="s", team="acme", scopes=[Scope.INFER]))
    headers = {"authorization": "Bearer short-lived"}
    assert (await stand.client.get("/v1/models", headers=headers)).status_code == 200
    await delete_record(stand.js, subjects.KEYS_BUCKET, key_name("short-lived"))
    revoked = time.monotonic()
    while (await stand.client.get("/v1/models", headers=headers)).status_code != 401:
        assert time.monotonic() - revoked < 1.0


async def test_process_finishes_what_runs_and_ends_with_zero(nats_url: str, stand: Stand) -> None:
    port = free_port()
    environment = os.environ | {"NATS_URL": nats_url, "SHOAL_GATEWAY_PORT": str(port)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", env=environment, stderr=asyncio.subprocess.PIPE
    )
    url = f"http://127.0.0.1:{port}"
    try:
        async with httpx.AsyncClient(base_url=url, headers=dict(stand.client.headers), timeout=30) as client:
            await until_async(lambda: ready(client))
            stand.consumer.paused = True
            await asyncio.sleep(0.5)
            running = asyncio.create_task(client.post("/v1/embeddings", json={"model": BASE, "input": "last"}))
            await until_async(stand.waiting_messages)
            process.terminate()
            await asyncio.sleep(0.3)
            stand.consumer.paused = False
            answer = await running
            assert answer.json()["data"][0]["embedding"] == vector("last", None)
        _, log = await asyncio.wait_for(process.communicate(), 20)
        assert process.returncode == 0
        assert b"gateway stopped" in log
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def ready(client: httpx.AsyncClient) -> bool:
    """Whether the gateway says that it is ready."""
    try:
        return (await client.get("/readyz")).status_code == 200
    except httpx.TransportError:
        return False


async def test_topology_conflict_ends_the_process_loudly(nats_url: str, stand: Stand) -> None:
    environment = os.environ | {"NATS_URL": nats_url, "SHOAL_GATEWAY_PORT": "0", "SHOAL_QUEUE_STORAGE": "file"}
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-m", "gateway"], env=environment, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert b"storage is memory, wanted file" in done.stderr


def test_all_wrong_settings_are_told_at_once() -> None:
    environment = os.environ | {"SHOAL_GATEWAY_PORT": "-1", "SHOAL_MAX_INPUTS": "many", "SHOAL_QUEUE_STORAGE": "tape"}
    done = subprocess.run(
        [sys.executable, "-m", "gateway"], env=environment, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 2
    for name in (b"SHOAL_GATEWAY_PORT", b"SHOAL_MAX_INPUTS", b"SHOAL_QUEUE_STORAGE"):
        assert name in done.stderr
