"""The last thing before a stack calls itself ready: a request of a client, all the way to a worker and back."""

from __future__ import annotations

import asyncio
import time

import httpx

from controlplane.stack.failures import StackError
from controlplane.stack.home import Endpoints
from wire.errors import Code

_TRY_EVERY_S = 0.2
_PATIENCE_S = 40.0


async def answer_first_request(endpoints: Endpoints, api_key: str, *, timeout_s: float) -> None:
    """Return once the gateway answers a request with ``api_key`` from a model; its weights are loaded then.

    Raises ``StackError`` with the last answer after ``timeout_s``.
    """
    limit = time.monotonic() + timeout_s
    headers = {"Authorization": f"Bearer {api_key}"}
    async with httpx.AsyncClient(base_url=endpoints.gateway, headers=headers, timeout=_PATIENCE_S) as client:
        while (reason := await _try_once(client)) is not None:
            if time.monotonic() > limit:
                raise StackError(f"the gateway does not answer a first request: {reason}")
            await asyncio.sleep(_TRY_EVERY_S)


async def _try_once(client: httpx.AsyncClient) -> str | None:
    try:
        listed = await client.get("/v1/models")
        if listed.status_code != httpx.codes.OK:
            return listed.text[:300]
        models = [row["id"] for row in listed.json()["data"]]
        if not models:
            return "no model is registered yet"
        answer = await client.post("/v1/embeddings", json={"model": models[0], "input": "ready?"})
    except httpx.HTTPError as error:
        return f"{type(error).__name__}: {error}"
    # a first model that makes no embeddings has said so through the whole path, which is what counts
    if answer.is_success or f'"{Code.TASK_UNSUPPORTED.value}"' in answer.text:
        return None
    return answer.text[:300]
