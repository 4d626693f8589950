"""Queue and payload store at their bounds: refused with the bound's name, nobody waits longer than the deadline."""

from __future__ import annotations

import asyncio
import time

import pytest
from nats.js.errors import APIError

from gateway import dispatch
from tests.integration.gateway.stand import BASE, Stand, running_stand
from wire import subjects


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
