"""What a right request gets."""

from __future__ import annotations

import asyncio
import base64
import struct
import time

import msgspec
import pytest
from nats.aio.msg import Msg
from openai import AsyncOpenAI, NotFoundError, OpenAI

from fabric.kv import put_record
from tests.integration.gateway.stand import BASE, BASE_RECORD, CHAT, OTHER_SECRET, POOL, SECRET, VERSIONS, Stand, vector
from tests.integration.gateway.waiting import until, until_async
from wire import codec
from wire.errors import Code, ErrorInfo
from wire.jobs import Demand, EmbeddingInputs, Job, Presence, Result
from wire.subjects import DEMAND_ALL, MODELS_BUCKET, lane_of


async def test_string_and_list_and_headers(stand: Stand) -> None:
    one = await stand.embed(input="hello")
    assert one.status_code == 200
    body = one.json()
    assert body["object"] == "list"
    assert body["model"] == BASE
    assert body["data"] == [{"object": "embedding", "index": 0, "embedding": vector("hello", None)}]
    assert body["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    assert one.headers["x-shoal-version"] == BASE
    assert one.headers["x-shoal-digest"] == BASE_RECORD.digest
    assert one.headers["x-shoal-queue-ms"] == "1.5"
    assert one.headers["x-shoal-batch-size"] == "1"
    assert "x-shoal-truncated" not in one.headers
    assert len(one.headers["x-request-id"]) == 32

    many = await stand.embed(input=["a", "ü", "c"], model="acme/support", metadata={"ignored": 1}, dimensions=4)
    assert [row["embedding"] for row in many.json()["data"]] == [vector(text, "3" * 64) for text in ("a", "ü", "c")]
    assert many.headers["x-shoal-version"] == "acme/support@3"
    assert many.headers["x-shoal-digest"] == "3" * 64
    job = stand.consumer.jobs[-1]
    assert (job.tenant, job.version, job.adapter_digest) == ("acme", "acme/support@3", "3" * 64)
    assert job.model_digest == BASE_RECORD.digest


async def test_base64_equals_float(stand: Stand) -> None:
    texts = [f"text {number}" for number in range(50)]
    plain = (await stand.embed(input=texts, encoding_format="float")).json()
    coded = (await stand.embed(input=texts, encoding_format="base64")).json()
    for row, other in zip(plain["data"], coded["data"], strict=True):
        assert list(struct.unpack("<4f", base64.b64decode(other["embedding"]))) == row["embedding"]


async def test_official_client_unchanged(stand: Stand) -> None:
    client = AsyncOpenAI(base_url=f"{stand.url}/v1", api_key=SECRET, max_retries=0)
    answer = await client.embeddings.create(model="acme/support@2", input=["x", "y"], user="someone")
    assert [row.embedding for row in answer.data] == [vector("x", "2" * 64), vector("y", "2" * 64)]
    assert answer.model == "acme/support@2"
    raw = await client.embeddings.with_raw_response.create(model=BASE, input="x", extra_body={"truncate": False})
    assert raw.headers["x-shoal-version"] == BASE
    listed = [model.id async for model in client.models.list()]
    assert listed == [CHAT, BASE, "acme/support", "acme/tags"]
    assert (await client.models.retrieve("acme/support")).owned_by == "acme"
    with pytest.raises(NotFoundError) as caught:
        await client.embeddings.create(model="acme/supporter", input="x")
    assert caught.value.code == "model_not_found"
    assert "acme/support" in caught.value.message
    await client.close()


async def test_official_client_in_its_synchronous_form(stand: Stand) -> None:
    def ask() -> list[float]:
        with OpenAI(base_url=f"{stand.url}/v1", api_key=SECRET, max_retries=0) as client:
            return client.embeddings.create(model=BASE, input="sync").data[0].embedding

    assert await asyncio.to_thread(ask) == vector("sync", None)


async def test_truncation_is_told(stand: Stand) -> None:
    cut = await stand.embed(input=["short", "long " * 400])
    assert cut.headers["x-shoal-truncated"] == "1"
    await stand.embed(input="long " * 400, truncate=False)
    inputs = stand.consumer.jobs[-1].inputs
    assert inputs.truncate is False  # type: ignore[union-attr]
    assert stand.consumer.jobs[0].token_estimate == min(256, 5 // 4 + 2) + 256


async def test_prompts_are_named_or_chosen_by_the_kind_of_input(stand: Stand) -> None:
    for body, prompt, input_type in (
        ({}, None, None),
        ({"prompt_name": "passage"}, "passage", None),
        ({"input_type": "search_query"}, None, "query"),
        ({"input_type": "passage"}, None, "document"),
    ):
        assert (await stand.embed(**body)).status_code == 200
        inputs = stand.consumer.jobs[-1].inputs
        assert isinstance(inputs, EmbeddingInputs)
        assert (inputs.prompt_name, inputs.input_type) == (prompt, input_type), body


async def test_large_inputs_travel_by_reference_and_are_removed(stand: Stand) -> None:
    texts = [f"{number} " + "word " * 100 for number in range(1500)]
    answer = await stand.embed(input=texts)
    assert answer.status_code == 200, answer.text
    assert [row["embedding"] for row in answer.json()["data"]] == [vector(text, None) for text in texts]
    assert type(stand.consumer.jobs[-1].inputs).__name__ == "InputsReference"
    store = await stand.js.object_store("payloads")

    async def removed() -> bool:
        return all(entry.deleted for entry in await store.list(ignore_deletes=False))

    await until_async(removed)


async def register_wide_model(stand: Stand) -> None:
    """As if vectors had 4096 numbers: 48 of them fit an answer."""
    wide = msgspec.structs.replace(BASE_RECORD, dimension=4096)
    await put_record(stand.js, MODELS_BUCKET, BASE, wide)
    await until(lambda: stand.gateway.plane().models.records[BASE] == wide)


async def test_answers_too_large_for_one_message_come_in_several_jobs(stand: Stand) -> None:
    await register_wide_model(stand)
    texts = [f"text {number}" for number in range(200)]
    answer = await stand.embed(input=texts, model="acme/support:canary")
    digest = answer.headers["x-shoal-digest"]
    assert [row["embedding"] for row in answer.json()["data"]] == [vector(text, digest) for text in texts]
    assert [row["index"] for row in answer.json()["data"]] == list(range(200))
    assert answer.json()["usage"]["total_tokens"] == 600
    assert len(stand.consumer.jobs) == 5
    assert {job.adapter_digest for job in stand.consumer.jobs} == {digest}


async def test_one_failed_job_of_several_fails_the_request_and_cancels_the_rest(stand: Stand) -> None:
    await register_wide_model(stand)

    def fail_one(job: Job, inputs: EmbeddingInputs) -> list[Result]:
        if "text 0" not in inputs.texts:
            return []
        return [Result(job=job.id, error=ErrorInfo(Code.NONFINITE_OUTPUT, "Not a number."))]

    stand.consumer.respond = fail_one
    answer = await stand.embed(input=[f"text {number}" for number in range(200)])
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "nonfinite_output"
    await until(lambda: len(stand.consumer.cancelled) == 4)
    assert stand.gateway.plane().queue._waiters == {}


async def test_request_id_is_echoed_when_harmless(stand: Stand) -> None:
    kept = await stand.client.get("/v1/models", headers={"x-request-id": "abc-1.2"})
    assert kept.headers["x-request-id"] == "abc-1.2"
    replaced = await stand.client.get("/v1/models", headers={"x-request-id": "a b<script>"})
    assert len(replaced.headers["x-request-id"]) == 32


async def test_split_follows_session_and_weights(stand: Stand) -> None:
    async def version(**body: object) -> str:
        answer = await stand.embed(model="acme/support:canary", **body)
        return str(answer.headers["x-shoal-version"])

    for user in ("anna", "ben", "chris"):
        assert len({await version(user=user) for _ in range(5)}) == 1
    spread = {await version(user=f"user {number}") for number in range(40)}
    assert spread == {"acme/support@2", "acme/support@3"}
    assert {await version() for _ in range(40)} == spread


async def test_same_adapter_name_of_another_team_is_unknown(stand: Stand) -> None:
    hidden = await stand.embed(model="other/support")
    unknown = await stand.embed(model="other/suppott")
    assert hidden.status_code == unknown.status_code == 404
    assert hidden.json()["error"]["code"] == unknown.json()["error"]["code"] == "model_not_found"
    assert "other/support" not in unknown.text
    assert "acme/support" in hidden.json()["error"]["hint"]
    theirs = await stand.client.get("/v1/models", headers={"authorization": f"Bearer {OTHER_SECRET}"})
    assert [card["id"] for card in theirs.json()["data"]] == [CHAT, BASE, "other/support"]
    one = await stand.client.get("/v1/models/other/support")
    assert one.status_code == 404


async def test_demand_is_told_to_idle_machines(stand: Stand) -> None:
    hints: list[Demand] = []

    async def take(msg: Msg) -> None:
        hints.append(codec.decode(msg.data, Demand))

    await stand.connection.subscribe(DEMAND_ALL, cb=take)
    await stand.connection.flush()
    await asyncio.gather(*(stand.embed(input="x" * 40) for _ in range(20)))
    await until(lambda: sum(hint.jobs for hint in hints) == 20)
    assert sum(hint.tokens for hint in hints) == 20 * 12
    assert len(hints) < 20


async def test_model_cards(stand: Stand) -> None:
    card = (await stand.client.get("/v1/models/acme/support")).json()
    assert card["shoal"]["versions"] == sorted(VERSIONS)
    assert card["shoal"]["aliases"]["canary"] == {"2": 50, "3": 50}
    assert card["shoal"]["digest"] == "3" * 64
    assert (card["shoal"]["tasks"], card["shoal"]["mode"]) == (["embeddings", "rerank"], "packed")
    tags = (await stand.client.get("/v1/models/acme/tags")).json()
    assert (tags["shoal"]["tasks"], tags["shoal"]["max_tokens"]) == (["classify"], 256)
    assert (await stand.client.get("/v1/models/acme/tags@3")).status_code == 404
    base = (await stand.client.get(f"/v1/models/{BASE}")).json()
    assert base["shoal"]["kind"] == "base"
    assert base["shoal"]["dimension"] == 4


async def test_an_adapters_jobs_share_a_lane_while_several_machines_serve(stand: Stand) -> None:
    subjects_seen: list[str] = []

    async def take(msg: Msg) -> None:
        subjects_seen.append(msg.subject)

    await stand.connection.subscribe("work.>", cb=take)
    await stand.connection.flush()
    await stand.embed(model="acme/support")
    other = Presence(machine="second", pool=POOL, models=[BASE], workers=1, at=time.time())
    stand.gateway.plane().presence.note(other)
    await until(lambda: stand.gateway.plane().presence.machines(POOL) == 2)
    headers = {"x-shoal-timeout-ms": "600"}
    for model in ("acme/support@1", "acme/support@1", BASE):
        await stand.client.post("/v1/embeddings", json={"model": model, "input": "x"}, headers=headers)
    await until(lambda: len(subjects_seen) == 4)
    lanes = [subject.rpartition(".")[2] for subject in subjects_seen]
    assert lanes == ["0", lane_of("1" * 64, 2), lane_of("1" * 64, 2), "0"]
    assert lanes[1] != "0"
