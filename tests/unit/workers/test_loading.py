"""Loading: a failure that may pass is forgotten, a lasting one is not, and nobody waits for another's load."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from tests.artifacts import RandomAdapter, random_adapter
from tests.unit.workers.bench import Bench
from wire.errors import Code, ShoalError
from wire.registry import ModelRecord
from workers.engine import load as load_module
from workers.engine import model_loader as model_module
from workers.engine.pipes import Adopt
from workers.engine.shelf import ShelvedModel
from workers.models import ModelOptions, load_model
from workers.packing.artifact import read_artifact

QUERY = "encoder.layer.0.attention.self.query"


@pytest.fixture
def bench(tiny_record: ModelRecord) -> Iterator[Bench]:
    made = Bench(tiny_record)
    yield made
    made.end()


def adapter(bench: Bench, *, seed: int = 1, rank: int = 4, base_digest: str = "") -> RandomAdapter:
    return random_adapter(bench.model.adapters.shapes, {QUERY: rank}, seed=seed, base_digest=base_digest)


def code_of(bench: Bench, one: RandomAdapter, path: Path, model: str | None = None) -> Code | None:
    """How a job with this adapter ends."""
    job = bench.job(["fish"], adapter=one.digest, model=model)
    bench.submit(job, path)
    error = bench.wait_for(job)[0].error
    return error.code if error is not None else None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryError(), Code.OUT_OF_MEMORY),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), Code.OUT_OF_MEMORY),
        (OSError(5, "Input/output error"), Code.ARTIFACT_UNAVAILABLE),
        (ShoalError(Code.ARTIFACT_UNAVAILABLE, "stale file handle"), Code.ARTIFACT_UNAVAILABLE),
    ],
)
def test_a_failure_that_passes_does_not_condemn_the_adapter(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: Code
) -> None:
    bench.start_tokenizer()
    bench.start_loaders()
    bench.start_device()
    one = adapter(bench)
    path = one.write_canonical(tmp_path)

    def failing(*arguments: Any, **options: Any) -> Any:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(load_module, "read_artifact", failing)
        assert code_of(bench, one, path) is code
    assert code_of(bench, one, path) is None


def test_a_lasting_failure_is_remembered_for_the_bytes_and_the_model_it_was_met_on(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.start_tokenizer()
    bench.start_loaders()
    bench.start_device()
    reads: list[Path] = []
    read = read_artifact

    def counted(path: Path, *, expected_digest: str | None = None) -> Any:
        reads.append(path)
        return read(path, expected_digest=expected_digest)

    monkeypatch.setattr(load_module, "read_artifact", counted)
    wide = adapter(bench, rank=32)
    bench.model.options = ModelOptions(max_rank=16)
    path = wide.write_canonical(tmp_path)
    for _ in range(3):
        assert code_of(bench, wide, path) is Code.ADAPTER_UNLOADABLE
    assert len(reads) == 1
    # the model is registered anew under its name: nothing kept for the old weights counts for the new ones
    bench.model.record = msgspec.structs.replace(bench.model.record, digest="1" * 64)
    bench.shelf.set_records([bench.model.record])
    bench.model.options = ModelOptions()
    assert code_of(bench, wide, path) is None


def test_weights_prepared_for_an_old_model_are_not_used_on_the_one_registered_anew(
    bench: Bench, tmp_path: Path
) -> None:
    bench.start_tokenizer()
    bench.start_loaders()
    bench.start_device()
    bench.model.record = msgspec.structs.replace(bench.model.record, digest="1" * 64)
    bench.shelf.set_records([bench.model.record])
    one = adapter(bench, base_digest="1" * 64)
    path = one.write_canonical(tmp_path)
    assert code_of(bench, one, path) is None
    bench.model.unload_adapter(one.digest)
    bench.model.record = msgspec.structs.replace(bench.model.record, digest="2" * 64)
    bench.shelf.set_records([bench.model.record])
    assert code_of(bench, one, path) is Code.ADAPTER_UNLOADABLE


def test_a_cold_adapter_does_not_wait_for_a_base_model_that_loads(
    bench: Bench, tiny_record: ModelRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = threading.Event()

    def slow(record: ModelRecord, *, options: ModelOptions, artifact: Path | None) -> Any:
        assert opened.wait(30)
        return load_model(record, options=options, artifact=artifact)

    monkeypatch.setattr(model_module, "load_model", slow)
    bench.shelf.set_records([tiny_record, msgspec.structs.replace(tiny_record, id="other", pinned=False)])
    bench.start_tokenizer()
    bench.start_loaders()
    bench.start_device()
    waits = bench.job(["fish"], model="other")
    bench.submit(waits)
    one = adapter(bench)
    assert code_of(bench, one, one.write_canonical(tmp_path)) is None
    assert waits.id not in bench.results
    opened.set()
    assert bench.wait_for(waits)[0].error is None


def test_a_huge_job_is_tokenized_apart_from_the_others(bench: Bench) -> None:
    bench.start_tokenizer()  # the one for bulk does not run: as if it was busy for long
    bench.start_device()
    huge, small = bench.job(["fish " * 100] * 2048), bench.job(["fish"])
    bench.submit(huge)
    bench.submit(small)
    assert bench.wait_for(small)[0].error is None
    assert bench.pipes.prepare_bulk.get_nowait() is not None


@pytest.mark.parametrize(
    ("error", "code"),
    [(torch.OutOfMemoryError("out of memory"), Code.OUT_OF_MEMORY), (IndexError("index"), Code.MODEL_UNLOADABLE)],
)
def test_a_model_that_fails_its_first_pass_fails_its_jobs_and_no_others(
    bench: Bench, tiny_record: ModelRecord, error: Exception, code: Code
) -> None:
    record = msgspec.structs.replace(tiny_record, id="other", pinned=False)
    bench.shelf.set_records([tiny_record, record])
    bad = load_model(record, options=ModelOptions())

    def failing(rows: Any, heads: Any) -> Any:
        raise error

    bad.kind.forward = failing  # type: ignore[method-assign]
    bench.start_tokenizer()
    waits = bench.job(["fish"], model="other")
    bench.submit(waits)
    assert bench.pipes.models.get(timeout=10) == record
    bench.residents.obey(Adopt(ShelvedModel(bad, reload_s=1.0, record_pin=False)))
    found = bench.wait_for(waits)[0].error
    assert found is not None
    assert found.code is code
    bench.start_device()
    good = bench.job(["fish"])
    bench.submit(good)
    assert bench.wait_for(good)[0].error is None


def test_idle_adapters_of_other_models_yield_to_a_first_pass(
    bench: Bench, tiny_record: ModelRecord, tmp_path: Path
) -> None:
    one = adapter(bench)
    bench.model.load_adapter(one.digest, read_artifact(one.write_canonical(tmp_path)))
    record = msgspec.structs.replace(tiny_record, id="other", pinned=False)
    bench.shelf.set_records([tiny_record, record])
    new = load_model(record, options=ModelOptions())
    forward = new.kind.forward

    def short(rows: Any, heads: Any) -> Any:
        if bench.model.adapters.size_bytes:
            raise torch.OutOfMemoryError("out of memory")
        return forward(rows, heads)

    new.kind.forward = short  # type: ignore[method-assign]
    bench.residents.obey(Adopt(ShelvedModel(new, reload_s=1.0, record_pin=False)))
    assert bench.shelf.get("other") is not None
