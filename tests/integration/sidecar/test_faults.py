"""Workers that die, freeze or are poisoned; queues that restart; jobs nobody waits for."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
import time

from fabric.topology import QueueSettings, ensure_consumer
from sidecar import metrics
from tests.integration.sidecar.conftest import Bench, KeptWorker, until
from tests.integration.sidecar.scripted import embed
from tests.servers import ServerProcess
from wire import codec, frames, subjects
from wire.errors import Code
from wire.jobs import DeadJob, GenerateOutputs, Job, Result

FROZEN_WORKER = """
    import asyncio, sys, time
    from pathlib import Path
    from sidecar.conformance.player import WorkerPlayer
    from wire import frames

    async def main():
        player = await WorkerPlayer.connect(Path(sys.argv[1]))
        player.hello("frozen")
        player.send(frames.Pull(limit_tokens=1000, models=["model-a"]))
        while not isinstance(await player.receive(), frames.Batch):
            pass
        time.sleep(600)

    asyncio.run(main())
"""


async def dead_jobs(bench: Bench) -> list[DeadJob]:
    info = await bench.js.stream_info(subjects.DEAD_STREAM)
    found = []
    for sequence in range(max(1, info.state.first_seq), info.state.last_seq + 1):
        raw = await bench.js.get_msg(subjects.DEAD_STREAM, sequence)
        found.append(codec.decode(raw.data or b"", DeadJob))
    return found


async def test_every_job_is_answered_once_when_a_worker_dies_under_load(bench: Bench) -> None:
    socket = await bench.sidecar()
    first = await bench.worker(socket, room_tokens=400, delay_s=0.2)
    jobs = await asyncio.gather(*(bench.publish() for _ in range(200)))
    await until(lambda: 0 < len(bench.answers) < 160 and len(first.received) > len(bench.answers) + 20)
    await first.stop()
    second = await bench.worker(socket, room_tokens=400, delay_s=0.005)
    await until(lambda: len(bench.answers) == len(jobs))
    assert all(len(results) == 1 for results in bench.answers.values())
    assert all(results[0].outputs is not None for results in bench.answers.values())
    assert len(second.received) >= 40
    await bench.expect_empty_queue()


async def test_a_job_that_kills_its_worker_twice_harms_nobody_else(bench: Bench) -> None:
    socket = await bench.sidecar()
    poison = "poison"
    kept = KeptWorker(bench, socket, kills=lambda job: job.id == poison)
    keeper = asyncio.create_task(kept.run())
    jobs = [await bench.publish(job_id=poison if number == 25 else None) for number in range(60)]
    await until(lambda: len(bench.answers) == len(jobs))
    kept.stop.set()
    await keeper
    error = bench.answers[poison][0].error
    assert error is not None
    assert error.code is Code.POISON_JOB
    assert kept.deaths == 2
    assert all(results[0].outputs is not None for job, results in bench.answers.items() if job != poison)
    (dead,) = await dead_jobs(bench)
    assert dead.job.id == poison
    assert "2 workers died" in dead.error.message
    await bench.expect_empty_queue()


async def test_a_frozen_worker_is_killed_and_its_jobs_run_elsewhere(bench: Bench) -> None:
    socket = await bench.sidecar(watchdog_s=1.0)
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(FROZEN_WORKER), str(socket)]) as frozen:  # noqa: ASYNC220
        jobs = [await bench.publish() for _ in range(3)]
        started = time.monotonic()
        while frozen.poll() is None and time.monotonic() - started < 20:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert frozen.poll() == -9
    await bench.worker(socket)
    for job_id in jobs:
        assert (await bench.answer(job_id)).outputs is not None
    await bench.expect_empty_queue()


async def test_results_survive_a_restart_of_the_queue_with_loss_of_memory(bench: Bench, nats: ServerProcess) -> None:
    socket = await bench.sidecar()
    worker = await bench.worker(socket, delay_s=1.5)
    jobs = [await bench.publish() for _ in range(5)]
    await until(lambda: len(worker.received) == 5)
    await asyncio.to_thread(nats.restart)
    for job_id in jobs:
        assert (await bench.answer(job_id)).outputs is not None
    await until(lambda: bench.connection.is_connected)
    worker.delay_s = 0.0
    later = await publish_when_possible(bench)
    assert (await bench.answer(later)).outputs is not None
    await bench.expect_empty_queue()


async def test_an_old_acknowledgement_never_settles_a_new_job(bench: Bench, nats: ServerProcess) -> None:
    """After a restart with loss of memory the new stream counts from 1 again, as the old one did."""
    held: list[Job] = []

    def answer(job: Job) -> Result | None:
        held.append(job)
        return None

    socket = await bench.sidecar()
    worker = await bench.worker(socket, answerer=answer)
    old = await bench.publish()
    await until(lambda: len(held) == 1)
    await asyncio.to_thread(nats.restart)
    await until(lambda: bench.connection.is_connected)
    new = await publish_when_possible(bench)
    await until(lambda: len(held) == 2)
    worker.player.send(frames.Results(results=[embed(held[0])]))
    assert (await bench.answer(old)).outputs is not None
    await asyncio.sleep(0.3)
    assert await bench.work_left() == 1
    worker.player.send(frames.Results(results=[embed(held[1])]))
    assert (await bench.answer(new)).outputs is not None
    await bench.expect_empty_queue()


async def test_nobody_runs_a_job_whose_deadline_passed(bench: Bench) -> None:
    late = await bench.publish(deadline_s=-1)
    worker = await bench.worker(await bench.sidecar())
    error = (await bench.answer(late)).error
    assert error is not None
    assert error.code is Code.DEADLINE_EXCEEDED
    assert worker.received == []
    worker.answerer = lambda job: None
    running = await bench.publish(deadline_s=0.5)
    error = (await bench.answer(running)).error
    assert error is not None
    assert error.code is Code.DEADLINE_EXCEEDED
    await bench.expect_empty_queue()


async def test_a_cancelled_job_is_dropped_wherever_it_is(bench: Bench) -> None:
    socket = await bench.sidecar(orphan_s=30.0)
    worker = await bench.worker(socket, room_tokens=1, answerer=lambda job: None)
    sent = await bench.publish()
    await until(lambda: len(worker.received) == 1)
    unpulled = await bench.publish()
    for job_id in (sent, unpulled):
        await bench.connection.publish(subjects.cancel(job_id), b"")
    await until(lambda: any(type(frame).__name__ == "Cancel" for frame in worker.frames))
    worker.limit_tokens = 1000
    worker.pull()
    await bench.expect_empty_queue()
    assert [job.id for job in worker.received] == [sent]
    assert bench.answers == {}


async def test_bytes_that_are_no_job_are_kept_and_leave_the_queue(bench: Bench) -> None:
    await bench.worker(await bench.sidecar())
    await bench.js.publish(subjects.work("default", "model-a"), b"\x81\xa2id\xa1x")
    good = await bench.publish()
    assert (await bench.answer(good)).outputs is not None
    await bench.expect_empty_queue()
    (dead,) = await dead_jobs(bench)
    assert dead.raw == b"\x81\xa2id\xa1x"
    assert dead.job.model == "model-a"


async def test_a_job_published_twice_runs_once(bench: Bench) -> None:
    worker = await bench.worker(await bench.sidecar(), delay_s=0.3)
    job_id = await bench.publish()
    await until(lambda: len(worker.received) == 1)
    body = codec.encode(worker.received[0])
    await bench.js.publish(subjects.work("default", "model-a"), body)
    await bench.answer(job_id)
    await bench.js.publish(subjects.work("default", "model-a"), body)
    await bench.expect_empty_queue()
    await until(lambda: len(bench.answers[job_id]) == 2)
    assert len(worker.received) == 1


async def test_an_orderly_stop_lets_others_run_what_has_not_started(bench: Bench) -> None:
    first_socket = await bench.sidecar("first", drain_s=5.0)
    first = await bench.worker(first_socket, worker="first", room_tokens=200, delay_s=0.5)
    jobs = [await bench.publish() for _ in range(100)]
    await until(lambda: len(first.received) >= 10)
    second = await bench.worker(await bench.sidecar("second"), worker="second", room_tokens=200)
    stopping = asyncio.create_task(bench.stop_sidecar("first"))
    started = time.monotonic()
    await until(lambda: len(bench.answers) == len(jobs))
    assert time.monotonic() - started < 10
    await stopping
    assert second.received
    assert all(len(results) == 1 for results in bench.answers.values())
    await bench.expect_empty_queue()


async def test_a_message_given_up_by_the_server_becomes_a_dead_job(bench: Bench) -> None:
    """Machines that vanish with the job for the last time leave nobody to say so but the server's advisory."""
    await bench.sidecar()
    job_id = await bench.publish()
    durable = subjects.work_consumer("default", "model-a")
    await ensure_consumer(bench.js, "default", "model-a", QueueSettings())
    inbox = bench.connection.new_inbox()
    subscription = await bench.connection.subscribe(inbox)
    for _ in range(6):
        await bench.connection.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.WORK.{durable}", b'{"batch":1,"expires":1000000000}', reply=inbox
        )
        message = await subscription.next_msg(timeout=3)
        if message.reply:
            await bench.connection.publish(message.reply, b"-NAK")
    error = (await bench.answer(job_id)).error
    assert error is not None
    assert error.code is Code.POISON_JOB
    assert [dead.job.id for dead in await dead_jobs(bench)] == [job_id]
    await bench.expect_empty_queue()


async def test_a_worker_without_successor_gives_its_jobs_to_another_machine(bench: Bench) -> None:
    first = await bench.worker(await bench.sidecar("first", orphan_s=0.5), answerer=lambda job: None)
    job_id = await bench.publish()
    await until(lambda: len(first.received) == 1)
    await bench.worker(await bench.sidecar("second"))
    await first.stop()
    assert (await bench.answer(job_id, 5)).outputs is not None
    await bench.expect_empty_queue()


async def test_a_lonely_machine_keeps_its_jobs_until_a_worker_is_back(bench: Bench) -> None:
    socket = await bench.sidecar(orphan_s=0.3)
    first = await bench.worker(socket, answerer=lambda job: None)
    job_id = await bench.publish()
    await until(lambda: len(first.received) == 1)
    returned = metrics.JOBS_RETURNED.labels(reason="no worker")
    before = returned._value.get()
    await first.stop()
    await asyncio.sleep(2.0)
    assert returned._value.get() - before <= 2
    assert await bench.work_left() == 1
    await bench.worker(socket)
    assert (await bench.answer(job_id, 5)).outputs is not None
    assert await dead_jobs(bench) == []


async def test_a_queue_that_stands_still_for_seconds_loses_nothing(bench: Bench, nats: ServerProcess) -> None:
    assert nats.process is not None
    worker = await bench.worker(await bench.sidecar(), delay_s=0.5)
    jobs = [await bench.publish() for _ in range(20)]
    await until(lambda: len(worker.received) == len(jobs))
    nats.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(4)
    nats.process.send_signal(signal.SIGCONT)
    for job_id in jobs:
        assert (await bench.answer(job_id)).outputs is not None
    assert (await bench.answer(await bench.publish())).outputs is not None
    await bench.expect_empty_queue()


async def publish_when_possible(bench: Bench) -> str:
    """Publish once the stream is there again."""
    for _ in range(100):
        try:
            return await bench.publish()
        except Exception:
            await asyncio.sleep(0.1)
    raise TimeoutError("the stream did not come back")


async def test_parts_of_a_text_go_again_when_its_job_is_published_again(bench: Bench) -> None:
    """The gateway does so after its connection was lost, and parts with it."""
    worker = await bench.worker(await bench.sidecar(), answerer=lambda job: None)
    job_id = await bench.publish()
    await until(lambda: worker.received)
    for number in range(2):
        outputs = GenerateOutputs(text=f"{number} ")
        worker.player.send(frames.Results(results=[Result(job=job_id, outputs=outputs, number=number, final=False)]))
    await until(lambda: len(bench.answers.get(job_id, [])) == 2)
    (job,) = worker.received
    subject = subjects.work("default", "model-a")
    await bench.js.publish(subject, codec.encode(job), headers={"Nats-Msg-Id": f"{job_id}.2"}, timeout=5)
    await until(lambda: len(bench.answers[job_id]) == 4)
    worker.player.send(frames.Results(results=[Result(job=job_id, outputs=GenerateOutputs(text="2"), number=2)]))
    await until(lambda: len(bench.answers[job_id]) == 5)
    assert [part.number for part in bench.answers[job_id]] == [0, 1, 0, 1, 2]
    assert len(worker.received) == 1
    await bench.expect_empty_queue()
