"""Kills in the middle of load: every accepted request gets the right answer before its deadline."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import nats
import numpy as np
import pytest

from tests.artifacts import MINILM_ID, MINILM_SOURCE
from tests.e2e.peft_reference import reference_vectors
from tests.e2e.running import RunningStack, eventually
from wire.subjects import WORK_STREAM

REQUESTS = 200
DEADLINE_S = 60.0

pytestmark = pytest.mark.timeout(300)


async def _fire(stack: RunningStack, models: list[str], after: int, strike: Callable[[], None]) -> list[httpx.Response]:
    """All requests at once; ``strike`` once ``after`` of them were answered."""
    answered = 0

    async def ask(client: httpx.AsyncClient, number: int) -> httpx.Response:
        nonlocal answered
        body = {"model": models[number % len(models)], "input": f"text {number} of the load"}
        response = await client.post("/v1/embeddings", json=body)
        answered += 1
        if answered == after:
            strike()
        return response

    headers = {
        "Authorization": f"Bearer {stack.credentials.api_key}",
        "x-shoal-timeout-ms": str(int(DEADLINE_S * 1000)),
    }
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=stack.endpoints.gateway, headers=headers, limits=limits, timeout=DEADLINE_S + 5
    ) as client:
        asked: list[Awaitable[httpx.Response]] = [ask(client, number) for number in range(REQUESTS)]
        return list(await asyncio.gather(*asked))


@pytest.mark.parametrize("killed", ["worker", "sidecar", "web", "nats"])
def test_every_request_is_answered_rightly_when_a_part_is_killed(
    stack: RunningStack, shipped: Path, killed: str
) -> None:
    models = [MINILM_ID, "admin/shipped"]
    before = stack.times_ready(killed)

    answers = asyncio.run(_fire(stack, models, REQUESTS // 10, lambda: os.kill(stack.pid_of(killed), signal.SIGKILL)))

    assert [answer.status_code for answer in answers] == [200] * REQUESTS
    texts = [f"text {number} of the load" for number in range(REQUESTS)]
    for start, adapter in ((0, None), (1, shipped)):
        served = np.array([answers[n].json()["data"][0]["embedding"] for n in range(start, REQUESTS, 2)])
        expected = reference_vectors(MINILM_SOURCE, adapter, texts[start::2])
        np.testing.assert_allclose(served, expected, atol=1e-4)
    eventually(lambda: stack.times_ready(killed) > before, timeout_s=90, what=f"{killed} ready again")


async def _queued(stack: RunningStack) -> int:
    connection = await nats.connect(stack.endpoints.nats)
    try:
        return int((await connection.jetstream().stream_info(WORK_STREAM)).state.messages)
    finally:
        await connection.close()


def test_bad_requests_are_refused_with_a_hint_and_never_reach_the_queue(stack: RunningStack, shipped: Path) -> None:
    url = f"{stack.endpoints.gateway}/v1/embeddings"
    key = {"Authorization": f"Bearer {stack.credentials.api_key}", "Content-Type": "application/json"}
    eventually(lambda: asyncio.run(_queued(stack)) == 0, timeout_s=60, what="an empty queue")
    worker = stack.pid_of("worker")
    bad = {
        "malformed": b'{"model": ',
        "wrong type": b'{"model": 3, "input": "x"}',
        "wrong input": b'{"model": "admin/shipped", "input": {"a": 1}}',
        "tokens": b'{"model": "admin/shipped", "input": [1, 2, 3]}',
        "empty": b'{"model": "admin/shipped", "input": ""}',
        "empty list": b'{"model": "admin/shipped", "input": []}',
        "dimensions": b'{"model": "admin/shipped", "input": "x", "dimensions": 64}',
        "10,000 inputs": b'{"model": "admin/shipped", "input": [' + b",".join([b'"x"'] * 10_000) + b"]}",
        "3 MB text": b'{"model": "admin/shipped", "input": "' + b"x" * 3_000_000 + b'"}',
    }
    for name, body in bad.items():
        answer = httpx.post(url, content=body, headers=key, timeout=30)
        assert 400 <= answer.status_code < 500, (name, answer.status_code)
        error = answer.json()["error"]
        assert error["code"], name
        assert error["message"], name
    unknown = httpx.post(url, json={"model": MINILM_ID, "input": "x"}, headers={"Authorization": "Bearer shoal_wrong"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (401, "invalid_api_key")

    assert asyncio.run(_queued(stack)) == 0
    assert stack.pid_of("worker") == worker
    good = httpx.post(url, json={"model": "admin/shipped", "input": "x"}, headers=key, timeout=30)
    assert good.status_code == 200
