"""REST of the fleet on real Valkey and NATS: what is told, to whom, and what a sidecar is asked."""

from __future__ import annotations

import time
from typing import Any

import nats
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.test import AsyncClient
from nats.aio.msg import Msg
from pytest_django.fixtures import Settings

from controlplane.accounts.models import Membership, Team
from controlplane.accounts.services import issue_api_key
from controlplane.events.models import Event
from fleet.models import BaseModel, Worker
from fleet.telemetry.points import Second
from fleet.telemetry.reader import live_reader
from fleet.telemetry.states import WorkerState, worker_state
from fleet.telemetry.writer import LiveWriter
from loras.models import Adapter, Version
from tests.unit.fleet.samples import MODEL, resident, telemetry
from wire.codec import decode, encode
from wire.errors import Code, ErrorInfo
from wire.frames import CommandReply, WorkerCommand
from wire.registry import Scope
from wire.subjects import command

pytestmark = pytest.mark.django_db(transaction=True)


def make_state(worker: str, *, age_s: float = 0.0) -> WorkerState:
    """State of a worker last heard of ``age_s`` ago, with an adapter of each team."""
    received = time.time() - age_s
    spoken = telemetry(worker=worker, at=received, adapters=[resident("a" * 64), resident("b" * 64, slot=1)])
    second = Second(int(received))
    second.add(spoken.sample)
    return worker_state(spoken, point=second.point(), received=received)


async def store(url: str, *states: WorkerState) -> None:
    """Put states where the bridge would."""
    writer = LiveWriter(url)
    await writer.write(states, [], {})
    await writer.close()


class KeyClient:
    """Requests with an API key."""

    def __init__(self, secret: str) -> None:
        self._client = AsyncClient()
        self._headers = {"authorization": f"Bearer {secret}"}

    async def get(self, path: str, query: dict[str, str] | None = None) -> Any:
        return await self._client.get(path, query or {}, headers=self._headers)

    async def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        return await self._client.post(path, body or {}, content_type="application/json", headers=self._headers)


@sync_to_async
def make_client(*, staff: bool, scopes: tuple[Scope, ...] = (Scope.READ, Scope.ADMIN)) -> KeyClient:
    """A client with a key of team ``own``; ``other`` has an adapter too."""
    user = User.objects.create_user("someone", is_staff=staff)
    own, other = Team.objects.create(name="own"), Team.objects.create(name="other")
    Membership.objects.create(team=own, user=user)
    for team, digest in ((own, "a" * 64), (other, "b" * 64)):
        adapter = Adapter.objects.create(team=team, name="titles")
        Version.objects.create(adapter=adapter, number=3, state="ready", digest=digest)
    secret = issue_api_key(team=own, name="test", scopes=list(scopes), actor=user).secret
    return KeyClient(secret)


async def test_workers_are_listed_with_staleness_and_only_own_names(live: str) -> None:
    client = await make_client(staff=False)
    await store(live, make_state("fresh"), make_state("silent", age_s=14))
    body = (await client.get("/api/v1/workers/")).json()
    assert body["live_available"] is True
    workers = {row["worker"]: row for row in body["results"]}
    assert (workers["fresh"]["stale"], workers["silent"]["stale"]) == (False, True)
    assert 14 <= workers["silent"]["last_seen_s"] < 60
    names = {row["digest"][0]: row["version"] for row in workers["fresh"]["live"]["adapters"]}
    assert names == {"a": "own/titles@3", "b": None}
    assert workers["fresh"]["live"]["figures"]["utilization"] is None


async def test_one_worker_by_id_and_a_stable_answer_for_what_is_not_there(live: str) -> None:
    client = await make_client(staff=False)
    await store(live, make_state("cpu"))
    assert (await client.get("/api/v1/workers/box.cpu/")).json()["id"] == "box.cpu"
    for missing in ("box.gone", "nonsense", "a.b.c", "=FF.x"):
        answer = await client.get(f"/api/v1/workers/{missing}/")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    answer = await client.get("/api/v1/workers/box.cpu/minutes/", {"hours": "1e9"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "hours")
    assert (await client.get("/api/v1/workers/box.cpu/minutes/")).json()["at"] == []


async def test_without_valkey_the_databases_last_word_is_shown(live: str, settings: Settings) -> None:
    client = await make_client(staff=False)
    seen = "2026-01-01T00:00:00Z"
    await Worker.objects.acreate(machine="box", worker_id="cpu", pool="default", state="ready", last_seen_at=seen)
    settings.SHOAL = settings.SHOAL.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"})
    live_reader.cache_clear()
    body = (await client.get("/api/v1/workers/")).json()
    assert body["live_available"] is False
    (row,) = body["results"]
    assert (row["id"], row["stale"], row["live"]) == ("box.cpu", True, None)


async def test_base_models_and_pools(live: str) -> None:
    client = await make_client(staff=False)
    await BaseModel.objects.acreate(
        model_id=MODEL, source="package:x", digest="d" * 64, manifest={"family": "bert", "tasks": ["embeddings"]}
    )
    await store(live, make_state("cpu"))
    (model,) = (await client.get("/api/v1/base-models/")).json()
    assert (model["id"], model["family"], model["dimension"]) == (MODEL, "bert", None)
    (pool,) = (await client.get("/api/v1/pools/")).json()
    assert (pool["name"], pool["base_models"], pool["workers"], pool["workers_ready"]) == ("default", [MODEL], 1, 1)


async def test_drain_asks_the_sidecar_and_is_kept_as_an_event(live: str, nats_url: str) -> None:
    client = await make_client(staff=True)
    await store(live, make_state("cpu"))
    asked: list[WorkerCommand] = []
    sidecar = await nats.connect(nats_url)

    async def answer(message: Msg) -> None:
        asked.append(decode(message.data, WorkerCommand))
        refused = ErrorInfo(Code.CONFLICT, "The worker is draining already.")
        await message.respond(encode(CommandReply(ok=len(asked) == 1, error=None if len(asked) == 1 else refused)))

    await sidecar.subscribe(command("box"), cb=answer)
    await sidecar.flush()
    try:
        assert (await client.post("/api/v1/workers/box.cpu/drain/")).status_code == 202
        refusal = await client.post("/api/v1/workers/box.cpu/drain/")
    finally:
        await sidecar.close()
    assert asked[0] == WorkerCommand(verb="drain", worker="cpu")
    assert (refusal.status_code, refusal.json()["error"]["message"]) == (409, "The worker is draining already.")
    assert [row.kind async for row in Event.objects.filter(kind__startswith="worker.")] == ["worker.drain"]


async def test_residents_are_pinned_and_evicted_by_digest(live: str, nats_url: str) -> None:
    client = await make_client(staff=True)
    await store(live, make_state("cpu"))
    asked: list[WorkerCommand] = []
    sidecar = await nats.connect(nats_url)

    async def answer(message: Msg) -> None:
        asked.append(decode(message.data, WorkerCommand))
        await message.respond(encode(CommandReply(ok=True)))

    await sidecar.subscribe(command("box"), cb=answer)
    await sidecar.flush()
    try:
        address, body = "/api/v1/workers/box.cpu/", {"digest": "ab" * 32}
        for verb, sent in (("pin", body), ("pin", {**body, "pinned": False}), ("evict", body)):
            reply = await client.post(f"{address}{verb}/", sent)
            assert reply.status_code == 204, reply.content
        wrong = await client.post(f"{address}pin/", {"digest": "../x"})
    finally:
        await sidecar.close()
    assert asked == [WorkerCommand(verb=verb, worker="cpu", digest="ab" * 32) for verb in ("pin", "unpin", "evict")]
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "digest")
    kinds = [row.kind async for row in Event.objects.filter(kind__startswith="worker.").order_by("id")]
    assert kinds == ["worker.pin", "worker.unpin", "worker.evict"]


async def test_a_command_without_a_sidecar_says_so(live: str) -> None:
    client = await make_client(staff=True)
    await store(live, make_state("cpu"))
    answer = await client.post("/api/v1/workers/box.cpu/resume/")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_worker")
    assert not await Event.objects.filter(kind="worker.resume").aexists()


@pytest.mark.parametrize(("staff", "scopes"), [(False, (Scope.READ, Scope.ADMIN)), (True, (Scope.READ,))])
async def test_owning_a_team_is_not_enough_to_drain(live: str, staff: bool, scopes: tuple[Scope, ...]) -> None:
    client = await make_client(staff=staff, scopes=scopes)
    await store(live, make_state("cpu"))
    answer = await client.post("/api/v1/workers/box.cpu/drain/")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "insufficient_scope")
