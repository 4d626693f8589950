"""A worker process from its start to its end: signals, settings, weights, and a stage that dies."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import msgspec
import pytest

from tests.artifacts import MINILM_SOURCE
from tests.integration.workers.sidecar_end import SidecarEnd, make_job, minilm_record, start_worker
from tests.unit.workers.conftest import write_tiny_bert
from wire.errors import Code
from wire.frames import Goodbye, Progress
from wire.jobs import Job
from wire.registry import ModelRecord
from workers.sources import resolve_source, weights_digest

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def record() -> ModelRecord:
    return minilm_record(digest=weights_digest(resolve_source(MINILM_SOURCE)))


def test_sigterm_finishes_the_running_batch_and_hands_the_rest_back(tmp_path: Path, record: ModelRecord) -> None:
    end = SidecarEnd(tmp_path / "s")
    process = start_worker(end, batch_tokens="600")
    try:
        end.accept(timeout_s=120)
        end.start(record)
        jobs: list[Job] = [make_job(["pump " * 100] * 4) for _ in range(30)]
        end.submit(*jobs)
        end.wait(lambda: len(end.results) >= 1)
        process.send_signal(signal.SIGTERM)
        goodbye = end.wait_frame(Goodbye)
        assert process.wait(20) == 0
        answered = set(end.results)
        assert answered.isdisjoint(goodbye.unstarted)
        assert answered | set(goodbye.unstarted) == {job.id for job in jobs}
        assert goodbye.unstarted
    finally:
        process.kill()
        process.wait()
        end.close()


def test_a_stage_that_dies_ends_the_process_with_a_failure(tmp_path: Path) -> None:
    # the model has no vectors for the last words of its tokenizer: the pass fails as a broken device does
    folder = write_tiny_bert(tmp_path / "model", vocabulary=10)
    tiny = msgspec.structs.replace(
        minilm_record(model_id="test/broken"), source=f"path:{folder}", max_tokens=40, dimension=32
    )
    end = SidecarEnd(tmp_path / "s")
    process = start_worker(end)
    try:
        end.accept(timeout_s=120)
        end.start(tiny)
        good, deadly = make_job(["a small"], model=tiny.id), make_job(["deep water"], model=tiny.id)
        end.submit(good)
        assert end.answers(good)[0].error is None
        end.submit(deadly)
        assert process.wait(30) == 1
        assert deadly.id not in end.results
        running = [frame.running for frame in end.frames if isinstance(frame, Progress)][-1]
        assert running == [deadly.id], "the sidecar would suspect other jobs"
    finally:
        process.kill()
        process.wait()
        end.close()


def test_wrong_settings_are_all_named_and_end_the_process(tmp_path: Path) -> None:
    end = SidecarEnd(tmp_path / "s")
    process = start_worker(end, slots="0", max_rank="none")
    assert process.wait(60) == 2
    end.close()


def test_weights_that_are_not_the_registered_ones_are_refused(tmp_path: Path) -> None:
    end = SidecarEnd(tmp_path / "s")
    process = start_worker(end)
    try:
        end.accept(timeout_s=120)
        end.start(minilm_record(digest="1" * 64))
        job = make_job(["pump"])
        end.submit(job)
        error = end.answers(job)[0].error
        assert error is not None
        assert error.code is Code.MODEL_UNLOADABLE
        assert "digest" in error.message
        before = time.monotonic()
        end.submit(again := make_job(["pump"]))
        end.answers(again)
        assert time.monotonic() - before < 10, "the load was tried again for every job"
    finally:
        process.kill()
        process.wait()
        end.close()
