"""Dead jobs on a real queue: who sees them, and a replay that a worker answers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest
from django.test import Client
from nats.aio.msg import Msg

from controlplane.events.models import Event
from fabric.connection import connect
from fabric.topology import QueueSettings, ensure_buckets, ensure_streams
from fleet.dead_jobs import list_dead_jobs, replay_dead_job
from tests.integration.registry.shop import BASE, Shop
from wire import codec, subjects
from wire.errors import Code, ErrorInfo, ShoalError
from wire.jobs import DeadJob, EmbeddingInputs, Inputs, InputsReference, Job, Result, Task


def dead(number: int, *, tenant: str = "acme", inputs: Inputs | None = None, raw: bytes | None = None) -> DeadJob:
    job = Job(
        id=f"job-{number}", task=Task.EMBEDDINGS, pool="default", model=BASE, model_digest="b" * 64,
        inputs=inputs or EmbeddingInputs(["private text"]), tenant=tenant, token_estimate=7, deadline=1.0,
        published=0.0, reply="reply.gone.job", version="acme/search@1",
    )  # fmt: skip
    error = ErrorInfo(Code.POISON_JOB, "The worker died twice while it ran.")
    return DeadJob(job, error, deliveries=2, machine="box", died=time.time(), raw=raw)


@pytest.fixture
def stream(shop: Shop, nats_url: str) -> str:
    """DEAD with four jobs, one of another team, one whose inputs are gone and one that is none."""

    async def fill() -> None:
        connection = await connect(nats_url, name="test")
        js = connection.jetstream()
        await ensure_streams(js, QueueSettings())
        await ensure_buckets(js, QueueSettings())
        gone = InputsReference("0" * 32, 600_000)
        for job in (dead(1), dead(2, tenant="rivals"), dead(3, inputs=gone), dead(4, raw=b"\xff")):
            await js.publish(subjects.dead(job.job.pool, job.job.model), codec.encode(job))
        await connection.close()

    asyncio.run(fill())
    return nats_url


@pytest.fixture
def worker(stream: str) -> Iterator[list[Job]]:
    """Answers every job on the queue, as a sidecar would; the jobs it saw."""
    seen: list[Job] = []
    started, ended = threading.Event(), threading.Event()

    async def serve() -> None:
        connection = await connect(stream, name="worker")

        async def take(message: Msg) -> None:
            job = codec.decode(message.data, Job)
            seen.append(job)
            await connection.publish(job.reply, codec.encode(Result(job.id, worker="cpu-0")))

        await connection.subscribe("work.>", cb=take)
        await connection.flush()
        started.set()
        await asyncio.to_thread(ended.wait)
        await connection.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(10)
    yield seen
    ended.set()
    thread.join(10)


def test_the_page_says_until_when_a_version_is_refused(stream: str, shop: Shop, client: Client) -> None:
    client.force_login(shop.owner)
    assert "refuses" not in client.get("/dead-jobs/").content.decode()
    flagged = msgspec.structs.replace(dead(9), refused_until=time.time() + 600)

    async def publish() -> None:
        connection = await connect(stream, name="test")
        await connection.jetstream().publish(subjects.dead("default", BASE), codec.encode(flagged))
        await connection.close()

    asyncio.run(publish())
    assert list_dead_jobs(teams={"acme"})[0].refused_until == flagged.refused_until
    page = client.get("/dead-jobs/").content.decode()
    assert 'box refuses <span class="mono">acme/search@1</span> until' in page


def test_each_team_sees_its_own(stream: str) -> None:
    assert [row.job for row in list_dead_jobs(teams=None)] == ["job-4", "job-3", "job-2", "job-1"]
    rows = list_dead_jobs(teams=["acme"])
    assert [(row.job, row.readable) for row in rows] == [("job-4", False), ("job-3", True), ("job-1", True)]
    assert rows[-1].error.message == "The worker died twice while it ran."
    assert "private text" not in repr(rows)
    assert list_dead_jobs(teams=[]) == []


def test_a_replay_is_a_new_job_with_a_fresh_deadline(stream: str, worker: list[Job], shop: Shop) -> None:
    replayed = replay_dead_job(sequence=1, actor=shop.owner)
    assert (replayed.answered, replayed.ok, replayed.outcome) == (True, True, "answered by cpu-0")
    (job,) = worker
    assert job.id.startswith("job-1-")
    assert (job.inputs, job.tenant) == (EmbeddingInputs(["private text"]), "acme")
    assert job.deadline > time.time() > job.published
    assert 1 not in [row.sequence for row in list_dead_jobs(teams=None)]
    event = Event.objects.get(kind="job.replayed")
    assert (event.actor, event.subject) == (shop.owner, "job job-1")
    with pytest.raises(ShoalError) as refused:
        replay_dead_job(sequence=1)
    assert refused.value.code is Code.NOT_FOUND


@pytest.mark.parametrize(("sequence", "said"), [(3, "600000 bytes"), (4, "never were a job"), (99, "no dead job 99")])
def test_what_cannot_be_replayed_stays(stream: str, sequence: int, said: str) -> None:
    with pytest.raises(ShoalError, match=said):
        replay_dead_job(sequence=sequence)
    assert len(list_dead_jobs(teams=None)) == 4


def test_a_queue_that_is_away_is_said(shop: Shop, settings: object) -> None:
    settings.SHOAL = settings.SHOAL.model_copy(update={"nats_url": "nats://127.0.0.1:1"})  # type: ignore[attr-defined]
    with pytest.raises(ShoalError) as refused:
        list_dead_jobs(teams=None)
    assert (refused.value.code, refused.value.status) == (Code.QUEUE_UNAVAILABLE, 503)
