"""Dead jobs are kept whatever stands against it, and nothing stays in the queue that nobody will deliver again."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from fabric.topology import QueueSettings, ensure_consumer
from sidecar.broker.dead import keep_dead, unreadable
from sidecar.broker.link import Link
from sidecar.dispatch import desk
from tests.integration.sidecar.conftest import Bench, until
from tests.integration.sidecar.test_faults import dead_jobs
from wire import codec, subjects
from wire.errors import Code, ErrorInfo
from wire.jobs import DeadJob, EmbeddingInputs, Job, Result


def internal_error(job: Job) -> Result:
    return Result(job=job.id, error=ErrorInfo(Code.INTERNAL, "bug"))


async def test_a_job_that_could_not_be_kept_is_kept_when_it_comes_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    async def lose_the_first(link: Link, dead: DeadJob) -> bool:
        nonlocal tries
        tries += 1
        return tries > 1 and await keep_dead(link, dead)

    monkeypatch.setattr(desk, "keep_dead", lose_the_first)
    worker = await bench.worker(await bench.sidecar(), answerer=internal_error)
    job_id = await bench.publish()
    error = (await bench.answer(job_id)).error
    assert error is not None
    assert error.code is Code.POISON_JOB
    # What the server would do once ack_wait is over.
    await bench.js.publish(subjects.work("default", "model-a"), codec.encode(worker.received[0]))
    await until(lambda: tries == 2)
    await until(lambda: len(bench.answers[job_id]) == 2)
    assert [dead.job.id for dead in await dead_jobs(bench)] == [job_id]


async def test_a_dead_job_larger_than_a_message_is_kept_without_its_inputs(bench: Bench) -> None:
    worker = await bench.worker(await bench.sidecar(), answerer=internal_error)
    limit = bench.connection.max_payload
    job_id = await bench.publish(inputs=EmbeddingInputs(texts=["x" * (limit - 1000)]))
    assert (await bench.answer(job_id)).error is not None
    assert len(worker.received) == 2
    (dead,) = await dead_jobs(bench)
    assert dead.job.id == job_id
    assert dead.job.inputs == EmbeddingInputs(texts=[])
    assert "the inputs were left out" in dead.error.message
    assert "bug" in dead.error.message
    await bench.expect_empty_queue()


async def test_unreadable_bytes_larger_than_a_message_are_kept_in_part(bench: Bench) -> None:
    link = Link(bench.connection, QueueSettings())
    await link.verify()
    data = b"y" * bench.connection.max_payload
    assert await keep_dead(link, unreadable("work.default.model-a.0", 7, 1, data, "no job", "m1"))
    (dead,) = await dead_jobs(bench)
    assert dead.raw is not None
    assert dead.raw == data[: len(dead.raw)]
    assert f"only the first {len(dead.raw)}" in dead.error.message


async def test_messages_given_up_while_no_sidecar_ran_become_dead_jobs(bench: Bench) -> None:
    job_id, other = await bench.publish(), await bench.publish(job_id=uuid.uuid4().hex)
    durable = await ensure_consumer(bench.js, "default", "model-a", QueueSettings())
    inbox = bench.connection.new_inbox()
    subscription = await bench.connection.subscribe(inbox)
    for _ in range(11):
        await bench.connection.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.WORK.{durable}", b'{"batch":1,"expires":300000000}', reply=inbox
        )
        message = await subscription.next_msg(timeout=3)
        if message.reply and codec.decode(message.data, Job).id == job_id:
            await bench.connection.publish(message.reply, b"-NAK")
        elif message.reply:
            await bench.connection.publish(message.reply, b'-NAK {"delay": 1}')
    assert await bench.work_left() == 2
    await bench.sidecar()
    for lost in (job_id, other):
        error = (await bench.answer(lost)).error
        assert error is not None
        assert error.code is Code.POISON_JOB
        assert f"stream DEAD under job id {lost}" in str(error.hint)
    assert {dead.job.id for dead in await dead_jobs(bench)} == {job_id, other}
    await bench.expect_empty_queue()


async def test_what_waits_to_be_delivered_again_is_not_taken_for_given_up(bench: Bench) -> None:
    job_id = await bench.publish()
    durable = await ensure_consumer(bench.js, "default", "model-a", QueueSettings())
    inbox = bench.connection.new_inbox()
    subscription = await bench.connection.subscribe(inbox)
    await bench.connection.publish(f"$JS.API.CONSUMER.MSG.NEXT.WORK.{durable}", b'{"batch":1}', reply=inbox)
    message = await subscription.next_msg(timeout=3)
    await bench.connection.publish(message.reply, b'-NAK {"delay": 1500000000}')
    await bench.worker(await bench.sidecar())
    await asyncio.sleep(0.5)
    assert await dead_jobs(bench) == []
    assert (await bench.answer(job_id)).outputs is not None


async def test_an_answer_too_large_to_keep_is_made_again(bench: Bench) -> None:
    """A client whose reply was lost gets one, instead of an acknowledgement that nobody hears."""
    worker = await bench.worker(await bench.sidecar())
    job_id = await bench.publish(inputs=EmbeddingInputs(texts=["x"] * 100_000))
    assert (await bench.answer(job_id)).outputs is not None
    await bench.expect_empty_queue()
    await bench.js.publish(subjects.work("default", "model-a"), codec.encode(worker.received[0]))
    await until(lambda: len(bench.answers[job_id]) == 2)
    assert len(worker.received) == 2
    await bench.expect_empty_queue()
