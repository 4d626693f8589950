"""The out-of-memory ladder: free, evict, halve, and only then fail the job that cannot fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.artifacts import random_adapter
from tests.unit.workers.bench import Bench, limit_memory
from wire.errors import Code
from wire.jobs import EmbeddingOutputs
from wire.registry import ModelRecord
from workers.models.protocol import Row, RowOutput, TaskHead
from workers.packing.artifact import read_artifact

QUERY = "encoder.layer.0.attention.self.query"


@pytest.fixture
def bench(tiny_record: ModelRecord) -> Iterator[Bench]:
    made = Bench(tiny_record)
    yield made
    made.end()


def load(bench: Bench, seed: int, folder: Path) -> str:
    """A random adapter in a slot of the bench's model."""
    one = random_adapter(bench.model.adapters.shapes, {QUERY: 4}, seed=seed, strength=4.0)
    bench.model.load_adapter(one.digest, read_artifact(one.write_canonical(folder)))
    return one.digest


def test_a_batch_is_halved_until_it_fits_and_only_the_job_too_large_alone_fails(bench: Bench) -> None:
    works = [bench.admit(["a small shoal", "fish"]) for _ in range(4)]
    large = bench.admit(["storm " * 30])
    expected = bench.model.embed(["a small shoal", "fish"], [None, None])
    limit_memory(bench.model, most_rows=3, most_tokens=20)
    bench.run_pass(*works, large)
    error = bench.wait_for(large.job)[0].error
    assert error is not None
    assert error.code is Code.OUT_OF_MEMORY
    for result in bench.wait_for(*[work.job for work in works]):
        assert isinstance(result.outputs, EmbeddingOutputs)
        np.testing.assert_allclose(np.frombuffer(result.outputs.vectors, "<f4").reshape(2, -1), expected, atol=1e-5)


def test_idle_adapters_give_their_memory_before_a_batch_is_halved(bench: Bench, tmp_path: Path) -> None:
    load(bench, 1, tmp_path)
    limit_memory(bench.model, adapters=0)
    work = bench.admit(["fish", "storm"])
    bench.run_pass(work)
    result = bench.wait_for(work.job)[0]
    assert result.error is None
    assert result.batch_rows == 2
    assert bench.model.adapters.size_bytes == 0


def test_a_half_that_is_short_of_memory_leaves_the_adapters_of_the_other_half(bench: Bench, tmp_path: Path) -> None:
    digests = [load(bench, seed, tmp_path) for seed in (1, 2)]
    idle = load(bench, 3, tmp_path)
    expected = [bench.model.embed(["fish"], [digest])[0] for digest in digests]
    limit_memory(bench.model, most_rows=1)
    works = [bench.admit(["fish", "fish"], adapter=digest) for digest in digests]
    bench.run_pass(*works)
    for result, vector in zip(bench.wait_for(*[work.job for work in works]), expected, strict=True):
        assert isinstance(result.outputs, EmbeddingOutputs), result.error
        found = np.frombuffer(result.outputs.vectors, "<f4").reshape(2, -1)
        np.testing.assert_allclose(found, np.stack([vector, vector]), atol=1e-5)
    assert idle not in bench.model.adapters.table


def test_a_job_cancelled_while_it_runs_sends_no_result_and_its_neighbours_do(bench: Bench) -> None:
    dropped, kept = bench.admit(["storm"]), bench.admit(["fish"])
    forward = bench.model.kind.forward

    def cancelled_meanwhile(rows: Sequence[Row], heads: Sequence[TaskHead | None]) -> list[RowOutput]:
        assert bench.room.cancel([dropped.job.id]) == 1
        return forward(rows, heads)

    bench.model.kind.forward = cancelled_meanwhile  # type: ignore[method-assign]
    bench.run_pass(dropped, kept)
    assert bench.wait_for(kept.job)[0].error is None
    bench.end()
    assert set(bench.results) == {kept.job.id}


def test_any_other_failure_of_the_device_ends_the_stage(bench: Bench) -> None:
    def broken(rows: Sequence[Row], heads: Sequence[TaskHead | None]) -> list[RowOutput]:
        raise RuntimeError("device lost")

    bench.model.kind.forward = broken  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="device lost"):
        bench.run_pass(bench.admit(["fish"]))
