"""Versions with weights of their own: loaded on their first job, counted, evicted, and harmless when they fail."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.artifacts import random_adapter
from tests.unit.workers.bench import Bench
from tests.unit.workers.conftest import write_tiny_bert
from tests.unit.workers.versions import canonical_of, write_bundle, write_canonical
from wire.errors import Code
from wire.frames import Ensure, Ensured, Evict, Pin
from wire.jobs import EmbeddingOutputs, Job, Result
from wire.registry import ModelRecord
from workers.engine import budget as budget_module
from workers.engine import model_loader as loader_module
from workers.engine.memory import Peak
from workers.engine.works import WaitingRoom
from workers.models import load_model
from workers.sources import ARTIFACT_SOURCE, resolve_source, weights_digest

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def bench(tiny_record: ModelRecord) -> Iterator[Bench]:
    made = Bench(tiny_record)
    made.start_tokenizer()
    made.start_loaders()
    made.start_device()
    yield made
    made.end()


class Version:
    """A version's record and file."""

    def __init__(self, base: ModelRecord, path: Path, *, number: int, merged: bool) -> None:
        self.path = path
        base_digest = weights_digest(resolve_source(base.source))
        self.record = msgspec.structs.replace(
            base, id=f"team/tuned@{number}", team="team", digest=path.stem, artifact=path.stem, pinned=False,
            source=base.source if merged else ARTIFACT_SOURCE, base_digest=base_digest if merged else None,
        )  # fmt: skip

    def job(self, bench: Bench, texts: list[str]) -> Job:
        return msgspec.structs.replace(bench.job(texts, model=self.record.id), model_digest=self.record.digest)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, tiny_record: ModelRecord) -> Version:
    folder = tmp_path_factory.mktemp("tuned")
    bundle = write_bundle(folder, write_tiny_bert(folder / "model", seed=9))
    return Version(tiny_record, bundle, number=1, merged=False)


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory, tiny_record: ModelRecord) -> Version:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModel

    base = resolve_source(tiny_record.source)
    settings = LoraConfig(r=4, target_modules=["query", "value", "dense"], use_dora=True)
    peft = get_peft_model(AutoModel.from_pretrained(base), settings)
    torch.manual_seed(4)
    with torch.no_grad():
        for parameter in peft.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn_like(parameter))
    tensors, header = canonical_of(peft, base_digest=weights_digest(base))
    path = write_canonical(tmp_path_factory.mktemp("merged"), tensors, header)
    return Version(tiny_record, path, number=2, merged=True)


def vectors(result: Result) -> NDArray[np.float32]:
    assert isinstance(result.outputs, EmbeddingOutputs), result.error
    return np.frombuffer(result.outputs.vectors, "<f4").reshape(-1, 32)


def loaded(bench: Bench) -> set[str]:
    return {one.model.record.id for one in bench.shelf.loaded()}


def limit_models(bench: Bench, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for so many tiny models, whose batches take more than they do themselves."""
    monkeypatch.setattr(bench.residents._memory, "measure", lambda: contextlib.nullcontext(Peak()))
    size = bench.shelved.held_bytes
    bench.residents._budget.limit_bytes = count * size + size // 2


def ensured(bench: Bench, digest: str) -> Ensured:
    found: list[Ensured] = []

    def arrived() -> bool:
        found[:] = [frame for frame in bench.frames if isinstance(frame, Ensured) and frame.digest == digest]
        return bool(found)

    with bench._changed:
        assert bench._changed.wait_for(arrived, timeout=30)
    return found[-1]


@pytest.mark.parametrize("kind", ["tuned", "merged"])
def test_a_version_is_loaded_on_its_first_job_and_answers_with_its_own_weights(
    bench: Bench, kind: str, request: pytest.FixtureRequest
) -> None:
    version: Version = request.getfixturevalue(kind)
    bench.shelf.set_records([bench.model.record, version.record])
    plain, own = bench.job(["fish", "storm"]), version.job(bench, ["fish", "storm"])
    bench.submit(plain)
    bench.submit(own, version.path)
    base, found = bench.wait_for(plain, own)
    alone = load_model(version.record, options=bench.options, artifact=version.path)
    np.testing.assert_allclose(vectors(found), alone.embed(["fish", "storm"], [None, None]), atol=1e-5)
    assert float(np.abs(vectors(found) - vectors(base)).max()) > 1e-2
    assert found.model_digest == version.record.digest
    bench.residents.snapshot()
    told = next(model for model in bench.residents.models if model.id == version.record.id)
    assert (told.version, told.tier, told.pinned, told.hits) == (version.record.id, "device", False, 1)
    assert told.loaded is not None
    assert told.dtype == "float32"


def test_a_base_model_that_loads_for_a_job_of_an_adapter_stays_the_base_model(
    bench: Bench, tiny_record: ModelRecord, tmp_path: Path
) -> None:
    other = msgspec.structs.replace(tiny_record, id="other", pinned=False)
    bench.shelf.set_records([tiny_record, other])
    ranks = {"encoder.layer.0.attention.self.query": 4, "encoder.layer.1.output.dense": 4}
    one = random_adapter(bench.model.adapters.shapes, ranks, seed=3, strength=4.0)
    first = bench.job(["fish"], model="other", adapter=one.digest)
    bench.submit(first, one.write_canonical(tmp_path))
    plain, after = bench.job(["fish"]), bench.job(["fish"], model="other")
    bench.submit(plain)
    adapted, expected = bench.wait_for(first, plain)
    bench.submit(after)
    (found,) = bench.wait_for(after)
    np.testing.assert_allclose(vectors(found), vectors(expected), atol=1e-6)
    assert float(np.abs(vectors(adapted) - vectors(expected)).max()) > 1e-3


def test_twenty_first_jobs_of_a_cold_version_cause_one_load(
    bench: Bench, tuned: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[str] = []

    def counted(record: ModelRecord, **options: Any) -> Any:
        loads.append(record.id)
        return load_model(record, **options)

    monkeypatch.setattr(loader_module, "load_model", counted)
    bench.shelf.set_records([bench.model.record, tuned.record])
    jobs = [tuned.job(bench, ["fish"]) for _ in range(20)]
    for job in jobs:
        bench.submit(job, tuned.path)
    assert [result.error for result in bench.wait_for(*jobs)] == [None] * 20
    assert loads == [tuned.record.id]


def test_a_version_that_cannot_load_fails_its_own_jobs_once_and_delays_nobody(
    bench: Bench, merged: Version, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def counted(record: ModelRecord, **options: Any) -> Any:
        tried.append(record.id)
        return load_model(record, **options)

    monkeypatch.setattr(loader_module, "load_model", counted)
    broken = msgspec.structs.replace(merged.record, source=ARTIFACT_SOURCE, base_digest=None)
    bench.shelf.set_records([bench.model.record, broken])
    for _ in range(3):
        bad, good = merged.job(bench, ["fish"]), bench.job(["fish"])
        bench.submit(bad, merged.path)
        bench.submit(good)
        refused, served = bench.wait_for(bad, good)
        assert refused.error is not None
        assert refused.error.code is Code.ADAPTER_UNLOADABLE
        assert "small files" in refused.error.message
        assert served.error is None
    assert tried == [broken.id], "the same bytes were tried again"


def test_a_file_that_is_missing_or_damaged_is_told_and_a_good_one_serves_at_once(
    bench: Bench, tuned: Version, tmp_path: Path
) -> None:
    bench.shelf.set_records([bench.model.record, tuned.record])
    damaged = tmp_path / "file"
    damaged.write_bytes(tuned.path.read_bytes()[:-1] + b"\x01")
    for path, code in ((tmp_path / "gone", Code.ARTIFACT_UNAVAILABLE), (damaged, Code.ARTIFACT_CORRUPT)):
        job = tuned.job(bench, ["fish"])
        bench.submit(job, path)
        error = bench.wait_for(job)[0].error
        assert error is not None
        assert error.code is code
    job = tuned.job(bench, ["fish"])
    bench.submit(job, tuned.path)
    assert bench.wait_for(job)[0].error is None


def test_models_take_turns_in_room_for_two_and_every_answer_stays_right(
    bench: Bench, tuned: Version, merged: Version, tiny_record: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [msgspec.structs.replace(tiny_record, id=f"other{n}", pinned=False) for n in range(2)]
    bench.shelf.set_records([tiny_record, tuned.record, merged.record, *others])
    limit_models(bench, 2, monkeypatch)
    bench.meter.take()
    texts = ["a small shoal", "deep water"]
    expected = {
        one.id: load_model(one, options=bench.options, artifact=path).embed(texts, [None, None])
        for one, path in [(tiny_record, None), (tuned.record, tuned.path), (merged.record, merged.path)]
    }
    for turn in range(4):
        jobs = [bench.job(texts), tuned.job(bench, texts), merged.job(bench, texts)]
        jobs += [bench.job(texts, model=other.id) for other in others]
        jobs = jobs[turn:] + jobs[:turn]
        for job in jobs:
            paths = {tuned.record.id: tuned.path, merged.record.id: merged.path}
            bench.submit(job, paths.get(job.model))
        for job, result in zip(jobs, bench.wait_for(*jobs, timeout_s=60), strict=True):
            wanted = expected.get(job.model, expected[tiny_record.id])
            np.testing.assert_allclose(vectors(result), wanted, atol=1e-5)
        assert len(loaded(bench)) <= 2
        assert tiny_record.id in loaded(bench), "a pinned model was evicted"
    counts, _ = bench.meter.take()
    assert counts.loads >= 4
    assert counts.evicted
    assert all(one.kind == "model" and one.name and "Made room for" in one.reason for one in counts.evicted)


def test_a_cold_model_gets_its_turn_beside_one_that_never_rests(
    bench: Bench, tuned: Version, tiny_record: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = msgspec.structs.replace(tiny_record, id="other", pinned=False)
    bench.shelf.set_records([tiny_record, other, tuned.record])
    limit_models(bench, 2, monkeypatch)
    running = [bench.job(["fish"], model="other") for _ in range(8)]
    for job in running:
        bench.submit(job)
    bench.wait_for(running[0])
    cold = tuned.job(bench, ["fish"])
    bench.submit(cold, tuned.path)
    limit = time.monotonic() + 60
    while cold.id not in bench.results:
        assert time.monotonic() < limit, "it waits for as long as the other has jobs"
        running = [job for job in running if job.id not in bench.results]
        while len(running) < 8:
            running.append(bench.job(["fish"], model="other"))
            bench.submit(running[-1])
        time.sleep(0.002)
    assert bench.results[cold.id].error is None
    # and those that came meanwhile are served after it
    assert [result.error for result in bench.wait_for(*running, timeout_s=60)] == [None] * len(running)


def test_room_that_jobs_do_not_give_back_is_refused_in_time_and_the_jobs_go_on(
    bench: Bench, tuned: Version, tiny_record: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget_module, "WAIT_S", 0.2)
    other = msgspec.structs.replace(tiny_record, id="other", pinned=False)
    bench.shelf.set_records([tiny_record, other, tuned.record])
    limit_models(bench, 2, monkeypatch)
    first = bench.job(["fish"], model="other")
    bench.submit(first)
    bench.wait_for(first)
    monkeypatch.setattr(WaitingRoom, "models_in_use", lambda room: {"other"})
    cold, meanwhile = tuned.job(bench, ["fish"]), bench.job(["fish"], model="other")
    bench.submit(cold, tuned.path)
    time.sleep(0.1)
    bench.submit(meanwhile)
    refused, served = bench.wait_for(cold, meanwhile)
    assert refused.error is not None
    assert refused.error.code is Code.OUT_OF_MEMORY
    assert "did not become free" in refused.error.message
    assert served.error is None


def test_an_unwanted_load_is_not_made(bench: Bench, tuned: Version, monkeypatch: pytest.MonkeyPatch) -> None:
    started, go_on = threading.Event(), threading.Event()
    loads: list[str] = []

    def slow(record: ModelRecord, **options: Any) -> Any:
        loads.append(record.id)
        started.set()
        assert go_on.wait(30)
        return load_model(record, **options)

    monkeypatch.setattr(loader_module, "load_model", slow)
    other = msgspec.structs.replace(bench.model.record, id="other", pinned=False)
    bench.shelf.set_records([bench.model.record, other, tuned.record])
    first, cancelled = bench.job(["fish"], model="other"), tuned.job(bench, ["fish"])
    bench.submit(first)
    assert started.wait(30)
    bench.submit(cancelled, tuned.path)
    bench.room.cancel([cancelled.id])
    go_on.set()
    assert bench.wait_for(first)[0].error is None
    last = bench.job(["fish"], model="other")
    bench.submit(last)
    bench.wait_for(last)
    assert loads == ["other"]


def test_orders_make_a_version_resident_pin_it_and_free_it(bench: Bench, tuned: Version) -> None:
    bench.shelf.set_records([bench.model.record, tuned.record])
    digest = tuned.record.digest
    bench.pipes.adapters.put(Ensure(tuned.record.id, digest, str(tuned.path)))
    assert ensured(bench, digest).error is None
    assert tuned.record.id in loaded(bench)
    for order, code in ((Pin(digest), None), (Evict(digest), Code.IN_USE), (Pin(digest, pinned=False), None),
                        (Evict(digest), None)):  # fmt: skip
        bench.frames.clear()
        bench.pipes.device.put(order)
        bench.room.nudge()
        error = ensured(bench, digest).error
        assert (error.code if error is not None else None) is code
    assert tuned.record.id not in loaded(bench)


def test_an_evicted_model_leaves_no_tensor_behind(bench: Bench, tuned: Version) -> None:
    bench.shelf.set_records([bench.model.record, tuned.record])
    job = tuned.job(bench, ["fish"])
    bench.submit(job, tuned.path)
    bench.wait_for(job)
    held = bench.shelf.get(tuned.record.id)
    assert held is not None
    left = [weakref.ref(parameter) for parameter in held.model.kind.module.parameters()]
    del held
    bench.pipes.device.put(Evict(tuned.record.digest))
    bench.room.nudge()
    assert ensured(bench, tuned.record.digest).error is None
    # the thread's last batch may still hold its rows; the next one lets go of them
    other = bench.job(["fish"])
    bench.submit(other)
    bench.wait_for(other)
    gc.collect()
    assert [ref() for ref in left if ref() is not None] == []
