"""A real worker process with real MiniLM weights, driven over its socket."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.artifacts import MINILM_SOURCE, RandomAdapter, minilm_shapes, random_adapter, targets
from tests.integration.workers.sidecar_end import SidecarEnd, make_job, minilm_record, start_worker, vectors_of
from wire.errors import Code
from wire.frames import Cancel, Drain, Ensure, Ensured, Evict, Pin, Progress, Pull, Stats
from wire.jobs import EmbeddingOutputs
from wire.registry import ModelRecord
from wire.telemetry import WorkerState
from workers.models import ModelOptions, load_model
from workers.packing.artifact import read_artifact
from workers.sources import resolve_source, weights_digest

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def digest() -> str:
    return weights_digest(resolve_source(MINILM_SOURCE))


@pytest.fixture(scope="module")
def record(digest: str) -> ModelRecord:
    return minilm_record(digest=digest)


@pytest.fixture(scope="module")
def _worker(
    tmp_path_factory: pytest.TempPathFactory, record: ModelRecord
) -> Iterator[tuple[SidecarEnd, subprocess.Popen[bytes]]]:
    end = SidecarEnd(tmp_path_factory.mktemp("w") / "s")
    process = start_worker(end, slots="4")
    try:
        end.accept(timeout_s=120)
        end.start(record)
        yield end, process
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        end.close()


@pytest.fixture
def end(_worker: tuple[SidecarEnd, subprocess.Popen[bytes]]) -> SidecarEnd:
    return _worker[0]


def adapter(seed: int, *, rank: int = 8, base_digest: str = "") -> RandomAdapter:
    shapes = minilm_shapes()
    paths = dict.fromkeys(targets(shapes, "query", "value"), rank)
    return random_adapter(shapes, paths, seed=seed, strength=4.0, base_digest=base_digest)


def artifacts_of(folder: Path, *adapters: RandomAdapter) -> dict[str, str]:
    return {one.digest: str(one.write_canonical(folder)) for one in adapters}


def test_more_adapters_than_slots_are_all_answered_as_one_by_one(
    end: SidecarEnd, record: ModelRecord, digest: str, tmp_path: Path
) -> None:
    adapters = [adapter(seed, rank=4 * (1 + seed % 3), base_digest=digest) for seed in range(9)]
    paths = artifacts_of(tmp_path, *adapters)
    texts = ["a seal was replaced", "pressure fell at pump 7 during the night shift", "ok"]
    jobs = [
        make_job([texts[number % 3], texts[(number + 1) % 3]], adapter=one.digest if one else None)
        for number, one in enumerate([None, *adapters, None, *adapters])
    ]
    end.submit(*jobs, artifacts=paths)
    answers = end.answers(*jobs)
    model = load_model(record, options=ModelOptions(slots=16))
    for one in adapters:
        model.load_adapter(one.digest, read_artifact(Path(paths[one.digest]), expected_digest=one.digest))
    for job, answer in zip(jobs, answers, strict=True):
        assert answer.adapter_digest == job.adapter_digest
        assert answer.model_digest == digest
        assert answer.batch_rows >= 1
        expected = model.embed(list(job.inputs.texts), [job.adapter_digest] * 2)  # type: ignore[union-attr]
        np.testing.assert_allclose(vectors_of(answer), expected, atol=1e-4, rtol=0)


def test_bad_artifacts_fail_their_own_jobs_with_their_reason(end: SidecarEnd, digest: str, tmp_path: Path) -> None:
    good, corrupt, foreign = adapter(100), adapter(101), adapter(102, base_digest="0" * 64)
    wide, absent = adapter(103, rank=128), adapter(104)
    broken = random_adapter(minilm_shapes(), dict.fromkeys(targets(minilm_shapes(), "value"), 4), seed=5)
    for part in broken.parts.values():
        part.b[0, 0] = float("nan")
    broken = RandomAdapter(broken.parts)
    paths = artifacts_of(tmp_path, good, corrupt, foreign, wide, absent, broken)
    Path(paths[corrupt.digest]).write_bytes(corrupt.file_bytes[:-8] + b"damaged!")
    Path(paths[absent.digest]).unlink()
    expected = {
        None: None,
        good.digest: None,
        corrupt.digest: Code.ARTIFACT_CORRUPT,
        foreign.digest: Code.ADAPTER_UNLOADABLE,
        wide.digest: Code.ADAPTER_UNLOADABLE,
        absent.digest: Code.ARTIFACT_UNAVAILABLE,
        broken.digest: Code.NONFINITE_OUTPUT,
    }
    jobs = [make_job(["pump"], adapter=name) for name in expected]
    end.submit(*jobs, artifacts=paths)
    for job, answer in zip(jobs, end.answers(*jobs), strict=True):
        assert (answer.error.code if answer.error else None) == expected[job.adapter_digest]
    # the damaged file was fetched again: the same digest works at once
    Path(paths[corrupt.digest]).write_bytes(corrupt.file_bytes)
    again = make_job(["pump"], adapter=corrupt.digest)
    end.submit(again, artifacts=paths)
    assert end.answers(again)[0].error is None


def test_long_texts_are_cut_or_refused_by_name(end: SidecarEnd) -> None:
    cut = make_job(["water " * 1000, "ok"])
    refused = make_job(["ok", "water " * 1000], truncate=False)
    huge = make_job(["water " * 300_000])
    end.submit(cut, refused, huge)
    answers = end.answers(cut, refused, huge)
    assert isinstance(answers[0].outputs, EmbeddingOutputs)
    assert (answers[0].outputs.truncated, answers[0].outputs.tokens) == (1, 256 + 3)
    assert answers[1].error is not None
    assert answers[1].error.code is Code.INPUT_TOO_LONG
    assert "1002 tokens" in answers[1].error.message
    assert "256" in answers[1].error.message
    np.testing.assert_array_equal(vectors_of(answers[2]).shape, (1, 384))
    np.testing.assert_allclose(vectors_of(answers[2])[0], vectors_of(answers[0])[0], atol=1e-5)


def test_cancelled_and_expired_jobs_do_not_run(end: SidecarEnd) -> None:
    big = make_job([f"text {number} " * 20 for number in range(64)])
    dropped, late, kept = make_job(["dropped"]), make_job(["late"], seconds=-1), make_job(["kept"])
    unknown = make_job(["pump"], model="nobody/knows")
    end.submit(big, dropped)
    end.send(Cancel(jobs=[dropped.id, "never-seen"]))
    end.submit(late, unknown, kept)
    answers = end.answers(big, late, unknown, kept)
    assert vectors_of(answers[0]).shape == (64, 384)
    assert [answer.error.code if answer.error else None for answer in answers[1:]] == [
        Code.DEADLINE_EXCEEDED,
        Code.MODEL_UNLOADABLE,
        None,
    ]
    # jobs of one model end in order of arrival: the dropped one would have been answered before the kept one
    assert dropped.id not in end.results


def test_a_job_with_more_rows_than_a_batch_lets_others_pass(end: SidecarEnd) -> None:
    texts = [f"reading {number} of the sensor at the pump was normal again today" for number in range(800)]
    big = make_job(texts)
    end.submit(big)
    small = [make_job([f"short {number}"]) for number in range(3)]
    end.submit(*small)
    end.answers(*small)
    assert big.id not in end.results, "the big job ran whole before the small ones"
    vectors = vectors_of(end.answers(big, timeout_s=180)[0])
    alone = make_job([texts[0], texts[799]])
    end.submit(alone)
    np.testing.assert_allclose(vectors[[0, 799]], vectors_of(end.answers(alone)[0]), atol=1e-4)


def test_ensure_pin_and_evict(end: SidecarEnd, tmp_path: Path, record: ModelRecord) -> None:
    one = adapter(200)
    path = artifacts_of(tmp_path, one)[one.digest]

    def ask(frame: Ensure | Pin | Evict) -> Code | None:
        end.forget()
        end.send(frame)
        error = end.wait_frame(Ensured, lambda found: found.digest == frame.digest).error
        return error.code if error is not None else None

    assert ask(Pin(one.digest)) is Code.NOT_FOUND
    assert ask(Ensure(record.id, one.digest, path)) is None
    assert ask(Pin(one.digest)) is None
    assert ask(Evict(one.digest)) is Code.IN_USE
    sample = end.wait_frame(Stats, lambda found: any(held.pinned for held in found.sample.adapters)).sample
    assert one.digest in [held.digest for held in sample.adapters]
    assert ask(Pin(one.digest, pinned=False)) is None
    assert ask(Evict(one.digest)) is None
    assert ask(Evict(record.digest)) is Code.IN_USE


def test_draining_finishes_and_asks_for_nothing(end: SidecarEnd) -> None:
    job = make_job(["last words"], estimate=5)
    end.send(Drain())
    end.submit(job)
    assert end.answers(job)[0].error is None
    end.forget()
    end.wait_frame(Stats, lambda found: found.sample.state is WorkerState.DRAINED)
    assert not any(isinstance(frame, Pull) for frame in end.frames)
    end.send(Drain(resume=True))
    end.wait_frame(Pull)


def test_credit_comes_back_and_life_is_shown_every_second(end: SidecarEnd) -> None:
    end.forget()
    jobs = [make_job(["pump"], estimate=1000) for _ in range(20)]
    end.submit(*jobs)
    end.answers(*jobs)
    sent = end.sent_tokens
    first = end.wait_frame(Pull, lambda found: found.limit_tokens >= sent + 32_768)
    limits = [frame.limit_tokens for frame in end.frames if isinstance(frame, Pull)]
    assert limits == sorted(limits)
    assert first.models
    end.forget()
    end.wait(lambda: sum(isinstance(frame, Progress) for frame in end.frames) >= 3, timeout_s=15)
    sample = end.wait_frame(Stats).sample
    assert 0 <= sample.busy <= 1
    assert sample.device.memory_total_bytes


def test_a_lost_sidecar_is_found_again_and_old_jobs_are_not_answered(end: SidecarEnd, record: ModelRecord) -> None:
    old = make_job([f"text {number} " * 30 for number in range(200)])
    end.submit(old)
    end.drop_connection()
    end.accept()
    end.start(record)
    new = make_job(["after"])
    end.submit(new)
    assert end.answers(new)[0].error is None
    assert old.id not in end.results
