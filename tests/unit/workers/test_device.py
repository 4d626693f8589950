"""The device's thread: rows of one batch, adapters that do not fit together, and which jobs it says are running."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.artifacts import RandomAdapter, random_adapter
from tests.unit.workers.bench import Bench, limit_memory
from wire.errors import Code
from wire.frames import Progress, Results
from wire.jobs import EmbeddingOutputs
from wire.registry import ModelRecord
from workers.models import ModelOptions
from workers.packing.artifact import read_artifact

QUERY = "encoder.layer.0.attention.self.query"
PAIR_BYTES = 4 * (32 + 32)


@pytest.fixture
def benches(tiny_record: ModelRecord) -> Iterator[list[Bench]]:
    made: list[Bench] = []
    yield made
    for bench in made:
        bench.end()


def adapter(bench: Bench, *, seed: int, rank: int = 4) -> RandomAdapter:
    return random_adapter(bench.model.adapters.shapes, {QUERY: rank}, seed=seed, strength=4.0)


def test_a_pass_short_of_memory_leaves_the_adapters_of_the_batch_s_later_passes(
    benches: list[Bench], tiny_record: ModelRecord, tmp_path: Path
) -> None:
    bench = Bench(tiny_record)
    benches.append(bench)
    adapters = [adapter(bench, seed=seed) for seed in (1, 2)]
    paths = [one.write_canonical(tmp_path) for one in adapters]
    for one, path in zip(adapters, paths, strict=True):
        bench.model.load_adapter(one.digest, read_artifact(path))
    # so long and so many rows that one pass takes each job's; the first is short of memory
    texts = (["fish"] * 12, ["storm " * 30] * 8)
    expected = [bench.model.embed(part[:1], [one.digest])[0] for part, one in zip(texts, adapters, strict=True)]
    limit_memory(bench.model, most_rows=8)
    jobs = [bench.job(part, adapter=one.digest) for part, one in zip(texts, adapters, strict=True)]
    bench.start_tokenizer()
    bench.wait_ready(*[bench.submit(job, path) for job, path in zip(jobs, paths, strict=True)])
    bench.start_device()
    for result, vector in zip(bench.wait_for(*jobs), expected, strict=True):
        assert isinstance(result.outputs, EmbeddingOutputs), result.error
        found = np.frombuffer(result.outputs.vectors, "<f4").reshape(-1, 32)
        np.testing.assert_allclose(found, np.broadcast_to(vector, found.shape), atol=1e-5)


@pytest.mark.parametrize("slots", [1, 128])
def test_the_oldest_job_gets_the_room_of_the_others_in_its_batch(
    benches: list[Bench], tiny_record: ModelRecord, tmp_path: Path, slots: int
) -> None:
    # room for one adapter of rank 32 or eight of rank 4, whichever
    bench = Bench(tiny_record, ModelOptions(slots=slots, adapter_bytes=32 * PAIR_BYTES))
    benches.append(bench)
    large, small = adapter(bench, seed=1, rank=32), [adapter(bench, seed=seed) for seed in (2, 3)]
    paths = {one.digest: one.write_canonical(tmp_path) for one in (large, *small)}
    for one in small[:slots]:
        bench.model.load_adapter(one.digest, read_artifact(paths[one.digest]))
    bench.start_tokenizer()
    bench.start_loaders()
    jobs = [bench.job(["fish", "storm"], adapter=one.digest) for one in (large, *small, large, *small)]
    works = [bench.submit(job, paths[job.adapter_digest or ""]) for job in jobs]
    bench.wait_ready(*works)
    bench.start_device()
    assert [result.error for result in bench.wait_for(*jobs)] == [None] * len(jobs)


def test_what_is_resident_is_noted_also_while_batches_follow_each_other_without_a_pause(
    benches: list[Bench], tiny_record: ModelRecord, tmp_path: Path
) -> None:
    bench = Bench(tiny_record)
    benches.append(bench)
    one = adapter(bench, seed=1)
    path = one.write_canonical(tmp_path)
    bench.start_tokenizer()
    bench.start_loaders()
    bench.start_device()
    limit = time.monotonic() + 2.5
    while time.monotonic() < limit:
        job = bench.job(["fish"], adapter=one.digest)
        bench.submit(job, path)
        bench.wait_for(job)
    assert [row.digest for row in bench.residents.adapters] == [one.digest]
    assert bench.residents.adapters[0].hits > 1


def test_an_adapter_that_lost_its_slot_is_told_with_its_reason_and_as_kept_in_host_memory(
    benches: list[Bench], tiny_record: ModelRecord, tmp_path: Path
) -> None:
    bench = Bench(tiny_record, ModelOptions(slots=1))
    benches.append(bench)
    first, second = adapter(bench, seed=1), adapter(bench, seed=2)
    bench.start_tokenizer()
    bench.start_loaders()
    bench.start_device()
    for one, version in ((first, "team/first@1"), (second, "team/second@4")):
        job = msgspec.structs.replace(bench.job(["fish"], adapter=one.digest), version=version)
        bench.submit(job, one.write_canonical(tmp_path))
        assert bench.wait_for(job)[0].error is None
    bench.residents.snapshot()
    told = {row.version: (row.tier, row.digest) for row in bench.residents.adapters}
    assert told == {"team/second@4": ("device", second.digest), "team/first@1": ("host", first.digest)}
    (left,) = bench.meter.take()[0].evicted
    assert (left.kind, left.digest, left.name) == ("adapter", first.digest, "team/first@1")
    assert "team/second@4" in left.reason
    assert "1 of 1 slots" in left.reason


def test_an_adapter_above_all_memory_fails_alone(
    benches: list[Bench], tiny_record: ModelRecord, tmp_path: Path
) -> None:
    bench = Bench(tiny_record, ModelOptions(adapter_bytes=16 * PAIR_BYTES))
    benches.append(bench)
    large, small = adapter(bench, seed=1, rank=32), adapter(bench, seed=2)
    bench.start_tokenizer()
    bench.start_loaders()
    jobs = [bench.job(["fish"], adapter=one.digest) for one in (large, small)]
    for job, one in zip(jobs, (large, small), strict=True):
        bench.submit(job, one.write_canonical(tmp_path))
    bench.start_device()
    refused, served = bench.wait_for(*jobs)
    assert refused.error is not None
    assert refused.error.code is Code.ADAPTER_UNLOADABLE
    assert served.error is None


def test_progress_names_exactly_the_jobs_on_the_device(benches: list[Bench], tiny_record: ModelRecord) -> None:
    bench = Bench(tiny_record, batch_tokens=60)
    benches.append(bench)
    other = msgspec.structs.replace(tiny_record, id="other", pinned=False)
    bench.shelf.set_records([tiny_record, other])
    bench.add_model(other)
    jobs = {name: bench.job(["fish"] * rows, model=model) for name, rows, model in (
        ("large", 100, None), ("small", 1, None), ("other", 3, "other"),
    )}  # fmt: skip
    bench.start_tokenizer()
    works = [bench.submit(job) for job in jobs.values()]
    bench.wait_ready(*works)
    bench.start_device()
    bench.wait_for(*jobs.values())
    bench.end()
    running: list[str] = []
    answered: set[str] = set()
    seen: set[tuple[str, ...]] = set()
    for frame in bench.frames:
        if isinstance(frame, Progress):
            if not set(frame.running) <= set(running):
                assert answered.issuperset(running), "a job left the device, and nothing said so"
            running = frame.running
            seen.add(tuple(sorted(running)))
        elif isinstance(frame, Results):
            assert {result.job for result in frame.results} <= set(running), "answered, but not said to run"
            answered |= {result.job for result in frame.results}
    by_model = {jobs["other"].id: "other"}
    assert all(len({by_model.get(job, "tiny") for job in names}) <= 1 for names in seen), seen
    assert (jobs["large"].id,) in seen
    assert (jobs["other"].id,) in seen
