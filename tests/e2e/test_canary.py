"""A canary as a person uses it: traffic splits as asked, and one that fails is held with nobody watching."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.running import RunningStack, eventually
from tests.e2e.shipping import minilm_adapter, push_ready

REQUESTS = 2000
CLIENTS = 8

pytestmark = pytest.mark.timeout(300)


def set_alias(stack: RunningStack, name: str, body: dict[str, Any]) -> None:
    answer = httpx.put(f"{stack.endpoints.web}/api/v1/adapters/{name}/aliases/live/", headers=bearer(stack), json=body)
    assert answer.status_code == 200, answer.text


def live_split(stack: RunningStack, name: str) -> dict[str, int]:
    answer = httpx.get(f"{stack.endpoints.web}/api/v1/adapters/{name}/", headers=bearer(stack))
    split: dict[str, int] = answer.json()["aliases"]["live"]
    return split


def bearer(stack: RunningStack) -> dict[str, str]:
    return {"Authorization": f"Bearer {stack.credentials.api_key}"}


def embed(client: httpx.Client, name: str, **more: Any) -> httpx.Response:
    return client.post("/v1/embeddings", json={"model": name, "input": "the pump leaks", **more})


def two_versions(stack: RunningStack, folder: Path, name: str) -> str:
    """Push two versions; the digest of the second."""
    push_ready(stack, minilm_adapter(folder / "a", seed=len(name)), name)
    digest: str = push_ready(stack, minilm_adapter(folder / "b", seed=len(name) + 100), name)["digest"]
    return digest


def test_traffic_splits_as_asked_and_a_session_stays_with_its_version(stack: RunningStack, tmp_path: Path) -> None:
    name = "admin/canary"
    two_versions(stack, tmp_path, name)
    set_alias(stack, name, {"split": {"1": 90, "2": 10}, "expect": {"1": 100}})

    def some(count: int) -> Counter[str]:
        with httpx.Client(base_url=stack.endpoints.gateway, headers=bearer(stack), timeout=60) as client:
            answers = [embed(client, name) for _ in range(count)]
        assert {answer.status_code for answer in answers} == {200}
        return Counter(answer.headers["x-shoal-version"] for answer in answers)

    def settled() -> bool:
        with httpx.Client(base_url=stack.endpoints.gateway, headers=bearer(stack), timeout=60) as client:
            return any(embed(client, name).headers["x-shoal-version"].endswith("@2") for _ in range(20))

    eventually(settled, timeout_s=20, what="the second version has a share of the requests")
    with ThreadPoolExecutor(CLIENTS) as pool:
        counted = sum(pool.map(some, [REQUESTS // CLIENTS] * CLIENTS), Counter[str]())
    assert sum(counted.values()) == REQUESTS
    # three points of the request's own rule; 2,000 draws at 10 % have a standard deviation of 0.7 points
    assert 0.07 <= counted[f"{name}@2"] / REQUESTS <= 0.13

    with httpx.Client(base_url=stack.endpoints.gateway, headers=bearer(stack), timeout=60) as client:
        for user in ("a", "b", "c", "d"):
            assert len({embed(client, name, user=user).headers["x-shoal-version"] for _ in range(5)}) == 1


def test_a_canary_that_fails_is_held_with_nobody_watching(stack: RunningStack, tmp_path: Path) -> None:
    name = "admin/bad-canary"
    digest = two_versions(stack, tmp_path, name)
    # its bytes are lost: requests to it fail, as truthfully as they can
    lost = [path for path in stack.home.root.rglob(f"*{digest}*") if path.is_file()]
    assert lost, "the artifact is in the store"
    for path in lost:
        path.unlink()
    set_alias(stack, name, {"split": {"1": 50, "2": 50}, "expect": {"1": 100}})

    with httpx.Client(base_url=stack.endpoints.gateway, headers=bearer(stack), timeout=60) as client:

        def held() -> bool:
            for _ in range(10):
                embed(client, name)
            return live_split(stack, name).get("2", 0) == 0

        eventually(held, timeout_s=120, what="the failing version has no share any more")
    events = httpx.get(f"{stack.endpoints.web}/api/v1/events/", params={"adapter": name}, headers=bearer(stack)).json()[
        "results"
    ]
    assert any("held" in event["message"].lower() for event in events), events
