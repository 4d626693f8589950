"""A version whose jobs end workers, whatever the job, ends no more of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from nats.aio.msg import Msg

from tests.integration.sidecar.artifact_server import ArtifactServer, artifact_server
from tests.integration.sidecar.conftest import Bench, KeptWorker, until
from tests.integration.sidecar.test_faults import dead_jobs
from wire import codec, frames, subjects
from wire.errors import Code
from wire.telemetry import DeviceSample, Telemetry, WorkerSample, WorkerState


@pytest.fixture
def web() -> Iterator[ArtifactServer]:
    with artifact_server() as server:
        yield server


async def test_a_version_that_ends_workers_is_flagged_and_refused(bench: Bench, web: ArtifactServer) -> None:
    bad, good = web.add(b"bad"), web.add(b"good")
    socket = await bench.sidecar(web_url=web.url)
    kept = KeptWorker(bench, socket, kills=lambda job: job.adapter_digest == bad)
    keeper = asyncio.create_task(kept.run())
    for _ in range(2):
        error = (await bench.answer(await bench.publish(adapter=bad))).error
        assert error is not None
        assert error.code is Code.POISON_JOB
    assert kept.deaths == 4
    for _ in range(5):
        error = (await bench.answer(await bench.publish(adapter=bad), 5)).error
        assert error is not None
        assert error.code is Code.POISON_JOB
        assert bad in error.message
        assert "is refused for" in error.message
    assert (await bench.answer(await bench.publish(adapter=good))).outputs is not None
    assert (await bench.answer(await bench.publish())).outputs is not None
    kept.stop.set()
    await keeper
    assert kept.deaths == 4
    first, second = await dead_jobs(bench)
    assert first.refused_until is None
    assert second.refused_until is not None
    await bench.expect_empty_queue()
    assert await _refused_in_telemetry(bench) == {bad}


async def _refused_in_telemetry(bench: Bench) -> set[str]:
    heard: list[Telemetry] = []

    async def take(msg: Msg) -> None:
        heard.append(codec.decode(msg.data, Telemetry))

    await bench.connection.subscribe(subjects.TELEMETRY_ALL, cb=take)
    await bench.connection.flush()
    device = DeviceSample(id="cpu", kind="cpu", name="CPU")
    sample = WorkerSample(
        worker="w", state=WorkerState.READY, at=0.0, device=device, uptime_s=1.0, busy=0.0, requests=0, tokens=0,
        rows=0, errors=0, waiting_jobs=0, waiting_tokens=0, batch_rows=[], batch_adapters=[], queue_ms=[], loads=0,
        evictions=0, process_bytes=None, reserved_bytes=None, models=[], adapters=[],
    )  # fmt: skip
    worker = await bench.worker(bench.home / "m1.sock")
    worker.player.send(frames.Stats(sample=sample))
    await until(lambda: heard)
    return set(heard[0].refused)
