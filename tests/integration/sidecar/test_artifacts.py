"""Adapters reach the machine once, checked, within the cache's bounds; a bad one harms only itself."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sidecar.artifacts.cache import ArtifactCache
from sidecar.artifacts.download import ArtifactSource
from sidecar.dispatch.desk import MAX_PARKED_PER_ARTIFACT
from tests.integration.sidecar.artifact_server import ArtifactServer, artifact_server
from tests.integration.sidecar.conftest import Bench, until
from tests.integration.sidecar.scripted import embed
from wire.errors import Code, ErrorInfo, ShoalError
from wire.jobs import Job, Result


@pytest.fixture
def web() -> Iterator[ArtifactServer]:
    with artifact_server() as server:
        yield server


@asynccontextmanager
async def open_cache(
    directory: Path, web: ArtifactServer, *, max_bytes: int = 10_000_000, timeout_s: float = 5.0
) -> AsyncIterator[ArtifactCache]:
    source = ArtifactSource(web.url, "shoal_key", timeout_s)
    cache = ArtifactCache(directory, max_bytes, source, failure_memory_s=0.3)
    cache.open()
    try:
        yield cache
    finally:
        await cache.close()


async def refusal(cache: ArtifactCache, digest: str) -> ErrorInfo:
    with pytest.raises(ShoalError) as caught:
        await cache.ensure(digest)
    return caught.value.info


async def test_twenty_first_requests_are_one_download(bench: Bench, web: ArtifactServer) -> None:
    web.delay_s = 0.2
    digest = web.add(b"adapter" * 1000)
    worker = await bench.worker(await bench.sidecar(web_url=web.url, machine_key="shoal_key"))
    jobs = [await bench.publish(adapter=digest) for _ in range(20)]
    base = await bench.publish()
    assert (await bench.answer(base)).outputs is not None
    assert not set(jobs) & set(bench.answers), "a cold adapter must not delay the base model"
    for job_id in jobs:
        assert (await bench.answer(job_id)).outputs is not None
    assert web.gets == {digest: 1}
    assert web.keys == {"Bearer shoal_key"}
    path = Path(next(batch.artifacts[digest] for batch in worker.batches if batch.artifacts))
    assert path.name == digest
    assert path.read_bytes() == web.files[digest]  # noqa: ASYNC240


async def test_an_adapter_that_cannot_be_had_fails_alone_and_is_not_fetched_in_a_loop(
    bench: Bench, web: ArtifactServer
) -> None:
    await bench.worker(await bench.sidecar(web_url=web.url))
    for _ in range(10):
        error = (await bench.answer(await bench.publish(adapter="a" * 64))).error
        assert error is not None
        assert error.code is Code.ARTIFACT_UNAVAILABLE
        assert "404" in error.message
    assert web.gets["a" * 64] == 1
    assert (await bench.answer(await bench.publish())).outputs is not None
    await bench.expect_empty_queue()


@pytest.mark.parametrize("trouble", ["redirects for ever", "wrong encoding"])
async def test_a_control_plane_that_answers_nonsense_harms_only_that_adapter(
    bench: Bench, web: ArtifactServer, trouble: str
) -> None:
    digest = web.add(b"adapter")
    if trouble == "redirects for ever":
        web.status[digest] = 302
    else:
        web.encodings[digest] = "gzip"
    await bench.worker(await bench.sidecar(web_url=web.url))
    error = (await bench.answer(await bench.publish(adapter=digest))).error
    assert error is not None
    assert error.code is Code.ARTIFACT_UNAVAILABLE
    assert (await bench.answer(await bench.publish())).outputs is not None


async def test_any_failure_of_a_download_is_the_adapters_alone(
    bench: Bench, web: ArtifactServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> Path:
        raise RuntimeError("unheard of")

    monkeypatch.setattr(ArtifactSource, "download", fail)
    await bench.worker(await bench.sidecar(web_url=web.url))
    error = (await bench.answer(await bench.publish(adapter="a" * 64))).error
    assert error is not None
    assert error.code is Code.ARTIFACT_UNAVAILABLE
    assert "unheard of" in error.message
    assert (await bench.answer(await bench.publish())).outputs is not None


async def test_slow_cold_adapters_do_not_stop_the_base_model(bench: Bench, web: ArtifactServer) -> None:
    web.delay_s = 4.0
    await bench.worker(await bench.sidecar(web_url=web.url))
    digests = [web.add(b"adapter %d" % number) for number in range(12)]
    cold = await asyncio.gather(*(bench.publish(adapter=digest) for digest in digests for _ in range(60)))
    await asyncio.sleep(0.5)
    base = [await bench.publish() for _ in range(5)]
    for job_id in base:
        assert (await bench.answer(job_id, 3)).outputs is not None
    assert not set(cold) & {job for job, results in bench.answers.items() if results[0].outputs is not None}


async def test_more_first_requests_than_may_wait_here_are_answered_all_the_same(
    bench: Bench, web: ArtifactServer
) -> None:
    web.delay_s = 0.8
    digest = web.add(b"adapter")
    await bench.worker(await bench.sidecar(web_url=web.url))
    jobs = await asyncio.gather(*(bench.publish(adapter=digest) for _ in range(3 * MAX_PARKED_PER_ARTIFACT)))
    for job_id in jobs:
        assert (await bench.answer(job_id)).outputs is not None
    assert web.gets == {digest: 1}
    await bench.expect_empty_queue()


async def test_a_file_the_worker_finds_corrupt_is_fetched_once_more(bench: Bench, web: ArtifactServer) -> None:
    digest = web.add(b"good")
    complaints = 0

    def answer(job: Job) -> Result:
        nonlocal complaints
        if job.adapter_digest and complaints == 0:
            complaints += 1
            return Result(job=job.id, error=ErrorInfo(Code.ARTIFACT_CORRUPT, "bad bytes"))
        return embed(job)

    await bench.worker(await bench.sidecar(web_url=web.url), answerer=answer)
    assert (await bench.answer(await bench.publish(adapter=digest))).outputs is not None
    assert web.gets[digest] == 2


async def test_a_file_that_disappears_is_fetched_again(bench: Bench, web: ArtifactServer) -> None:
    digest = web.add(b"adapter")
    await bench.worker(await bench.sidecar(web_url=web.url))
    await bench.answer(await bench.publish(adapter=digest))
    (bench.home / "cache-m1" / digest).unlink()
    assert (await bench.answer(await bench.publish(adapter=digest))).outputs is not None
    assert web.gets[digest] == 2


async def test_wrong_bytes_are_fetched_once_more_then_refused(tmp_path: Path, web: ArtifactServer) -> None:
    digest, other = web.add(b"first"), web.add(b"second")
    web.lies.update({digest: 1, other: 9})
    async with open_cache(tmp_path, web) as cache:
        assert (await cache.ensure(digest)).read_bytes() == b"first"
        info = await refusal(cache, other)
        assert info.code is Code.ARTIFACT_CORRUPT
        assert web.gets == {digest: 2, other: 2}
        assert [path.name for path in tmp_path.iterdir()] == [digest]  # noqa: ASYNC240


async def test_a_cut_download_goes_on_at_the_byte_on_disk(tmp_path: Path, web: ArtifactServer) -> None:
    digest = web.add(os.urandom(200_000))
    web.cuts[digest] = 1
    async with open_cache(tmp_path, web) as cache:
        assert (await cache.ensure(digest)).read_bytes() == web.files[digest]
    assert len(web.ranges) == 1
    assert web.ranges[0] != "bytes=0-"


@pytest.mark.parametrize(("status", "word"), [(401, "SHOAL_MACHINE_KEY"), (403, "scope"), (404, "store"), (500, "log")])
async def test_every_refusal_says_what_to_do(tmp_path: Path, web: ArtifactServer, status: int, word: str) -> None:
    digest = web.add(b"x")
    web.status[digest] = status
    async with open_cache(tmp_path, web) as cache:
        info = await refusal(cache, digest)
    assert info.code is Code.ARTIFACT_UNAVAILABLE
    assert str(status) in info.message
    assert word in (info.hint or "")


async def test_a_silent_control_plane_times_out(tmp_path: Path, web: ArtifactServer) -> None:
    digest = web.add(b"x")
    web.delay_s = 1.0
    async with open_cache(tmp_path, web, timeout_s=0.2) as cache:
        info = await refusal(cache, digest)
    assert "timed out" in info.message


async def test_a_failure_is_remembered_for_a_moment_only(tmp_path: Path, web: ArtifactServer) -> None:
    digest = web.add(b"x")
    web.status[digest] = 500
    async with open_cache(tmp_path, web) as cache:
        await refusal(cache, digest)
        await refusal(cache, digest)
        assert web.gets[digest] == 1
        web.status.clear()
        await asyncio.sleep(0.35)
        assert (await cache.ensure(digest)).read_bytes() == b"x"


async def test_the_least_recently_used_goes_first_and_never_one_in_use(tmp_path: Path, web: ArtifactServer) -> None:
    digests = [web.add(bytes([number]) * 400) for number in range(4)]
    async with open_cache(tmp_path, web, max_bytes=1200) as cache:
        for digest in digests[:3]:
            await cache.ensure(digest)
        cache.hold(digests[0])
        assert cache.find(digests[1])
        await cache.ensure(digests[3])
        assert cache.find(digests[2]) is None
        assert cache.bytes == 1200
        for digest in (digests[1], digests[3]):
            cache.hold(digest)
        info = await refusal(cache, digests[2])
        assert info.code is Code.ARTIFACT_UNAVAILABLE
        assert "does not fit" in info.message
        assert all(cache.find(digest) for digest in (digests[0], digests[1], digests[3]))
    # What is on disk is found again by the next process; half-written files are not.
    (tmp_path / ".half.part").write_bytes(b"x")
    async with open_cache(tmp_path, web, max_bytes=1200) as cache:
        assert cache.bytes == 1200
        assert not (tmp_path / ".half.part").exists()
        gets = web.gets.total()
        web.status.update(dict.fromkeys(digests, 500))
        assert await cache.ensure(digests[0])
        assert web.gets.total() == gets, "cached adapters serve without the control plane"


async def test_a_full_disk_is_a_clear_refusal(tmp_path: Path, web: ArtifactServer) -> None:
    if not Path("/dev/full").exists():  # noqa: ASYNC240
        pytest.fail("the test needs /dev/full")
    digest = web.add(b"x" * 1000)
    async with open_cache(tmp_path, web) as cache:
        handle = os.open("/dev/full", os.O_WRONLY)
        with pytest.MonkeyPatch.context() as patch:
            # The nearest thing to a full file system that needs no privileges: the same write, to a full device.
            write = os.write
            patch.setattr("sidecar.artifacts.download.os.write", lambda _, data: write(handle, data))
            info = await refusal(cache, digest)
        os.close(handle)
    assert info.code is Code.ARTIFACT_UNAVAILABLE
    assert "disk is full" in info.message
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240


async def test_a_caller_that_goes_away_does_not_end_the_download(tmp_path: Path, web: ArtifactServer) -> None:
    digest = web.add(b"x")
    web.delay_s = 0.2
    async with open_cache(tmp_path, web) as cache:
        first = asyncio.create_task(cache.ensure(digest))
        await until(lambda: web.gets[digest] == 1)
        second = asyncio.create_task(cache.ensure(digest))
        first.cancel()
        assert (await second).read_bytes() == b"x"
    assert web.gets[digest] == 1


async def test_downloads_at_the_same_time_stay_within_the_bound_together(tmp_path: Path, web: ArtifactServer) -> None:
    web.delay_s = 0.1
    old = web.add(b"o" * 400_000)
    digests = [web.add(bytes([number]) * 400_000) for number in range(4)]
    async with open_cache(tmp_path, web, max_bytes=1_000_000) as cache:
        await cache.ensure(old)
        for digest in digests:
            cache.hold(digest)
        ended = await asyncio.gather(*(cache.ensure(digest) for digest in digests), return_exceptions=True)
        assert sum(isinstance(one, Path) for one in ended) == 2
        stored = sum(path.stat().st_size for path in tmp_path.iterdir())  # noqa: ASYNC240
        assert cache.bytes == stored == 800_000
        assert cache.find(old) is None


async def test_what_can_never_fit_drives_nothing_out(tmp_path: Path, web: ArtifactServer) -> None:
    small, huge = web.add(b"s" * 1000), web.add(b"h" * 50_000)
    async with open_cache(tmp_path, web, max_bytes=10_000) as cache:
        await cache.ensure(small)
        assert "10000 bytes" in (await refusal(cache, huge)).message
        assert cache.find(small) is not None
