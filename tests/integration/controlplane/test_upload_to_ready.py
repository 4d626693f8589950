"""An upload by REST becomes a ready version that gateways know, and every later verb on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from fabric.connection import connect
from fabric.kv import get_record
from tests.integration.controlplane.adapters import lora_files, multipart, zipped
from tests.integration.controlplane.site import MINILM, Site, until
from wire.registry import AdapterRecord
from wire.subjects import ADAPTERS_BUCKET

pytestmark = pytest.mark.timeout(300)


def push(api: httpx.Client, name: str, files: Any, **fields: str) -> httpx.Response:
    return api.post("adapters/", data={"name": name, **fields}, files=files)


def verdict(api: httpx.Client, url: str) -> dict[str, Any]:
    """The version once its validation has ended."""

    def settled() -> dict[str, Any] | None:
        body: dict[str, Any] = api.get(url).json()
        return None if body["state"] in {"validating", "receiving"} else body

    return until(settled, timeout_s=120, what=f"a verdict on {url}")  # type: ignore[no-any-return]


async def read_record(site: Site, name: str) -> AdapterRecord | None:
    connection = await connect(site.nats_url, name="test")
    try:
        return await get_record(connection.jetstream(), ADAPTERS_BUCKET, name, AdapterRecord)
    finally:
        await connection.close()


def record_when(site: Site, name: str, condition: Callable[[AdapterRecord | None], Any]) -> AdapterRecord | None:
    """The record that gateways read, once it is as it should be."""

    def read() -> list[AdapterRecord | None]:
        found = asyncio.run(read_record(site, name))
        return [found] if condition(found) else []

    found: list[AdapterRecord | None] = until(read, what=f"the record of {name}")
    return found[0]


def test_life_of_an_adapter(site: Site, api: httpx.Client) -> None:
    received = push(api, "admin/life", multipart(lora_files(1)), message="first")
    assert received.status_code == 201, received.text
    assert received.json()["state"] == "validating"
    assert received.headers["location"].endswith("/api/v1/adapters/admin/life/versions/1/")
    first = verdict(api, received.headers["location"])
    assert first["state"] == "ready", first["report"]
    assert first["aliases"] == ["live"]
    assert {file["role"] for file in first["files"]} == {"uploaded", "canonical"}

    adapter = api.get("adapters/admin/life/").json()
    assert adapter["base_model"] == MINILM
    assert adapter["aliases"] == {"live": {"1": 100}}
    known = record_when(site, "admin/life", lambda found: found and found.aliases)
    assert known is not None
    assert known.versions[1].digest == first["digest"]
    assert (known.versions[1].rank, known.aliases) == (4, {"live": {1: 100}})

    # the same bytes, and the same content in another package
    again = push(api, "admin/life", multipart(lora_files(1)))
    assert (again.status_code, again.json()["number"]) == (200, 1)
    packed = push(api, "admin/life", {"file": ("a.zip", zipped(lora_files(1)))})
    assert (packed.status_code, packed.json()["number"]) == (201, 2)
    same = verdict(api, packed.headers["location"])
    assert (same["number"], same["duplicate_upload"], same["digest"]) == (1, 2, first["digest"])
    assert [row["number"] for row in api.get("adapters/admin/life/versions/").json()["results"]] == [1]

    # a later version waits for a person; one that asks goes live
    third = verdict(api, push(api, "admin/life", multipart(lora_files(3))).headers["location"])
    assert (third["number"], third["state"], third["aliases"]) == (3, "ready", [])
    fourth = verdict(api, push(api, "admin/life", multipart(lora_files(4)), promote="true").headers["location"])
    assert fourth["aliases"] == ["live"]

    # the number of a known content is nobody's to retire, least of all the original's
    refused = api.delete("adapters/admin/life/versions/2/")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    assert "admin/life@1" in refused.json()["error"]["message"]
    assert api.get("adapters/admin/life/versions/1/").json()["state"] == "ready"

    # 1 → (3 never served) → 4: back to 1
    stale = api.put("adapters/admin/life/aliases/live/", json={"version": 3, "expect": {"1": 100}})
    assert (stale.status_code, stale.json()["error"]["code"]) == (409, "stale")
    assert stale.json()["error"]["current"] == {"4": 100}
    assert api.post("adapters/admin/life/rollback/", json={}).json()["aliases"] == {"live": {"1": 100}}
    canary = api.put("adapters/admin/life/aliases/canary/", json={"split": {"3": 95, "4": 5}, "expect": None}).json()[
        "aliases"
    ]
    assert canary == {"canary": {"3": 95, "4": 5}, "live": {"1": 100}}

    refused = api.delete("adapters/admin/life/versions/4/")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "in_use")
    assert refused.json()["error"]["aliases"] == ["canary"]
    assert api.delete("adapters/admin/life/aliases/canary/").status_code == 204
    assert api.delete("adapters/admin/life/versions/4/").status_code == 204
    unready = api.put("adapters/admin/life/aliases/live/", json={"version": 4})
    assert (unready.status_code, unready.json()["error"]["code"]) == (409, "version_not_ready")
    known = record_when(site, "admin/life", lambda found: found and 4 not in found.versions)
    assert known is not None
    assert set(known.versions) == {1, 3}

    kinds = {row["kind"] for row in api.get("events/", params={"adapter": "admin/life"}).json()["results"]}
    assert {"adapter.created", "version.validating", "version.ready", "alias.moved", "version.retired"} <= kinds

    assert api.delete("adapters/admin/life/").status_code == 409
    assert api.delete("adapters/admin/life/", params={"confirm": "admin/life"}).status_code == 204
    assert api.get("adapters/admin/life/").status_code == 404
    record_when(site, "admin/life", lambda found: found is None)


def test_verdicts_that_are_not_ready(api: httpx.Client) -> None:
    nameless = push(api, "admin/asks", multipart(lora_files(11, base=None)))
    asked = verdict(api, nameless.headers["location"])
    assert asked["state"] == "needs_input", asked["report"]
    question = asked["report"]["question"]
    assert MINILM in question["choices"]
    url = nameless.headers["location"] + "answer/"
    wrong = api.post(url, json={"field": question["field"], "value": "no/such"})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "value")
    assert api.post(url, json={"field": question["field"], "value": MINILM}).status_code == 202
    assert verdict(api, nameless.headers["location"])["state"] == "ready"

    broken = {**lora_files(12), "adapter_model.safetensors": lora_files(12)["adapter_model.safetensors"][:-7]}
    rejected = verdict(api, push(api, "admin/broken", multipart(broken)).headers["location"])
    assert rejected["state"] == "rejected"
    assert "TRUNCATED" in {row["code"] for row in rejected["report"]["rows"]}
    # rejected bytes are no version: sent again, they are judged again
    assert push(api, "admin/broken", multipart(broken)).json()["number"] == 2

    inert = verdict(api, push(api, "admin/inert", multipart(lora_files(13, effect=False))).headers["location"])
    assert (inert["state"], inert["aliases"]) == ("ready", [])
    put = {"version": 1}
    assert api.put("adapters/admin/inert/aliases/live/", json=put).json()["error"]["param"] == "confirm"
    assert api.put("adapters/admin/inert/aliases/live/", json={**put, "confirm": True}).status_code == 200
