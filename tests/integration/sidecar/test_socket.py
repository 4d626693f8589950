"""The socket: who may connect, what is refused and why, presence, telemetry and commands."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import time
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from sidecar.conformance.player import WorkerPlayer
from sidecar.sockets.listener import Listener
from sidecar.sockets.peer import Peer
from tests.integration.sidecar.artifact_server import artifact_server
from tests.integration.sidecar.conftest import Bench, until
from wire import codec, frames, subjects
from wire.errors import Code
from wire.jobs import Presence
from wire.telemetry import DeviceSample, Telemetry, WorkerSample, WorkerState


def sample(worker: str) -> WorkerSample:
    return WorkerSample(
        worker=worker, state=WorkerState.READY, at=time.time(), device=DeviceSample("cpu", "cpu", "CPU"), uptime_s=1,
        busy=0.5, requests=1, tokens=2, rows=3, errors=0, waiting_jobs=0, waiting_tokens=0, batch_rows=[3],
        batch_adapters=[1], queue_ms=[1.0], loads=0, evictions=0, process_bytes=None, reserved_bytes=None, models=[],
        adapters=[],
    )  # fmt: skip


async def command(bench: Bench, verb: str, **facts: str) -> frames.CommandReply:
    wanted = frames.WorkerCommand(verb=verb, worker=facts.pop("worker", "cpu"), **facts)
    reply = await bench.connection.request(subjects.command("m1"), codec.encode(wanted), timeout=5)
    return codec.decode(reply.data, frames.CommandReply)


async def test_the_socket_is_private_and_a_stale_file_is_no_obstacle(bench: Bench) -> None:
    path = bench.home / "m1.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    assert await bench.sidecar() == path
    await until(lambda: stat.S_IMODE(path.stat().st_mode) == 0o600)
    await bench.worker(path)
    await bench.sidecar("m2", socket=path)
    with pytest.raises(ExceptionGroup) as caught:
        await bench.sidecars.pop("m2")[1]
    assert "another sidecar listens" in str(caught.value.exceptions[0])
    assert (await bench.answer(await bench.publish())).outputs is not None


async def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("precious")
    with pytest.raises(OSError, match="no socket"):
        await Listener(path, None).open()  # type: ignore[arg-type]
    assert path.read_text() == "precious"


async def test_malformed_frames_close_only_their_connection(bench: Bench) -> None:
    path = await bench.sidecar()
    good = await bench.worker(path)
    for data, word in [
        (b"\x00\x00\x00\x05hello", "not a frame"),
        ((frames.MAX_FRAME_BYTES + 1).to_bytes(4, "big"), "announced"),
        (b"\x00\x00\x00\x00", "announced"),
    ]:
        for greeted in (False, True):
            player = await WorkerPlayer.connect(path)
            if greeted:
                player.hello("other")
            player.send_raw(data)
            assert word in await player.expect_close()
            await player.close()
    player = await WorkerPlayer.connect(path)
    player.hello("other", protocol=99)
    assert "protocol 99" in await player.expect_close()
    await player.close()
    assert (await bench.answer(await bench.publish())).outputs is not None
    assert not good.closed.is_set()


async def test_the_same_worker_again_takes_the_place_of_the_older(bench: Bench) -> None:
    path = await bench.sidecar()
    older = await bench.worker(path, answerer=lambda job: None)
    jobs = [await bench.publish() for _ in range(3)]
    await until(lambda: len(older.received) == 3)
    newer = await bench.worker(path)
    for job_id in jobs:
        assert (await bench.answer(job_id)).outputs is not None
    await until(older.closed.is_set)
    assert {job.id for job in newer.received} == set(jobs)


async def test_goodbye_returns_the_unstarted_jobs_without_suspicion(bench: Bench) -> None:
    path = await bench.sidecar()
    leaving = await bench.worker(path, worker="leaving", answerer=lambda job: None)
    jobs = [await bench.publish() for _ in range(5)]
    await until(lambda: len(leaving.received) == 5)
    leaving.player.send(frames.Goodbye(unstarted=jobs, reason="update"))
    staying = await bench.worker(path, worker="staying")
    for job_id in jobs:
        await bench.answer(job_id)
    assert len(staying.batches) < 5, "jobs under suspicion would have come one by one"


async def test_presence_and_telemetry_are_published(bench: Bench) -> None:
    seen: list[Msg] = []

    async def take(msg: Msg) -> None:
        seen.append(msg)

    await bench.connection.subscribe(subjects.PRESENCE_ALL, cb=take)
    await bench.connection.subscribe(subjects.TELEMETRY_ALL, cb=take)
    worker = await bench.worker(await bench.sidecar())

    def presences() -> list[Presence]:
        return [codec.decode(one.data, Presence) for one in seen if one.subject == "presence.m1"]

    await until(lambda: any(one.models == ["model-a"] and one.workers == 1 for one in presences()))
    worker.player.send(frames.Stats(sample=sample("cpu")))
    await until(lambda: any(one.subject == "telemetry.m1.cpu" for one in seen))
    telemetry = codec.decode(next(one.data for one in seen if one.subject == "telemetry.m1.cpu"), Telemetry)
    assert (telemetry.machine, telemetry.pool, telemetry.sample.busy) == ("m1", "default", 0.5)
    await bench.stop_sidecar()
    assert presences()[-1].models == []


async def test_commands_take_effect_and_say_what_stands_against_them(bench: Bench) -> None:
    with artifact_server() as web:
        digest = web.add(b"adapter")
        worker = await bench.worker(await bench.sidecar(web_url=web.url, orphan_s=60.0))
        await until(lambda: worker.frames)
        assert (await command(bench, "ensure", digest=digest, model="model-a")).ok
        for verb in ("pin", "unpin", "evict"):
            assert (await command(bench, verb, digest=digest)).ok
        kinds = [type(frame).__name__ for frame in worker.frames]
        assert kinds[-4:] == ["Ensure", "Pin", "Pin", "Evict"]
        missing = await command(bench, "ensure", digest="b" * 64, model="model-a")
        assert missing.error is not None
        assert missing.error.code is Code.ARTIFACT_UNAVAILABLE
    for wrong in ({"verb": "dance"}, {"verb": "pin"}, {"verb": "ensure", "digest": "c" * 64}):
        reply = await command(bench, **wrong)
        assert reply.error is not None
        assert reply.error.code is Code.INVALID_REQUEST
    unknown = await command(bench, "drain", worker="nobody")
    assert unknown.error is not None
    assert "cpu" in unknown.error.message

    assert (await command(bench, "drain")).ok
    await until(lambda: frames.Drain() in worker.frames)
    job_id = await bench.publish()
    await asyncio.sleep(0.5)
    assert worker.received == []
    # A drained worker that starts again is still drained.
    again = await bench.worker(bench.home / "m1.sock")
    await until(lambda: frames.Drain() in again.frames)
    # Also when the sidecar starts again, and an orderly end of the sidecar itself drains nobody for later.
    other = await bench.worker(bench.home / "m1.sock", worker="other", answerer=lambda job: None)
    await until(lambda: other.frames)
    await bench.stop_sidecar()
    await again.closed.wait()
    await bench.sidecar(orphan_s=60.0)
    again = await bench.worker(bench.home / "m1.sock")
    await until(lambda: frames.Drain() in again.frames)
    other = await bench.worker(bench.home / "m1.sock", worker="other", room_tokens=0)
    await until(lambda: other.frames)
    assert frames.Drain() not in other.frames
    assert job_id not in bench.answers
    assert (await command(bench, "resume")).ok
    assert (await bench.answer(job_id)).outputs is not None


async def test_only_the_process_that_said_hello_is_killed() -> None:
    left, right = socket.socketpair(socket.AF_UNIX)
    with left, right:
        peer = Peer.of(left)
        assert peer.pid == os.getpid()
        assert not peer.kill(1), "another pid than the one at the other end"
        assert not peer.kill(os.getpid()), "never this very process"
        peer.close()
