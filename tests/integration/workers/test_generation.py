"""A worker process that makes texts: streams, cancellation, drain, SIGTERM, a lost sidecar, and embeddings beside."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.integration.workers.sidecar_end import SidecarEnd, make_job, start_worker
from tests.unit.workers.conftest import write_tiny_bert
from tests.unit.workers.generation.decoders import decoder_record, write_decoder
from wire.frames import Cancel, Drain, Goodbye, Progress, Stats
from wire.jobs import GenerateInputs, GenerateOutputs, Job, Result, Sampling, Task
from wire.registry import ModelRecord
from wire.telemetry import WorkerState

pytestmark = pytest.mark.timeout(240)
DECODER = "test/tiny-decoder"
ENCODER = "test/tiny-bert"


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[ModelRecord]:
    decoder = write_decoder(tmp_path_factory.mktemp("decoder"))
    encoder = write_tiny_bert(tmp_path_factory.mktemp("encoder"))
    pinned = msgspec.structs.replace(decoder_record(decoder, DECODER), pinned=True)
    return [
        pinned,
        msgspec.structs.replace(pinned, id=ENCODER, source=f"path:{encoder}", tasks=[Task.EMBEDDINGS], dimension=32),
    ]


@pytest.fixture
def worker(tmp_path: Path, records: list[ModelRecord]) -> Iterator[tuple[SidecarEnd, subprocess.Popen[bytes]]]:
    end = SidecarEnd(tmp_path / "s")
    process = start_worker(end, dtype="float32")
    try:
        hello = end.accept(timeout_s=120)
        assert Task.GENERATE.value in hello.tasks
        end.start(*records)
        yield end, process
    finally:
        process.kill()
        process.wait()
        end.close()


def text_job(prompt: str, *, tokens: int, stream: bool = True, **sampling: Any) -> Job:
    inputs = GenerateInputs(
        prompt=prompt, sampling=Sampling(max_tokens=tokens, ignore_eos=True, **sampling), stream=stream
    )
    return msgspec.structs.replace(make_job([prompt], model=DECODER), task=Task.GENERATE, inputs=inputs)


def text_of(result: Result) -> GenerateOutputs:
    assert isinstance(result.outputs, GenerateOutputs), result.error
    return result.outputs


def begun(end: SidecarEnd, job: Job) -> bool:
    return any(part.job == job.id for part in end.parts)


def test_streams_go_on_beside_embeddings_and_a_cancelled_one_says_no_more(
    worker: tuple[SidecarEnd, subprocess.Popen[bytes]],
) -> None:
    end, _ = worker
    jobs = [text_job("the sea", tokens=480) for _ in range(4)]
    end.submit(*jobs)
    end.wait(lambda: all(begun(end, job) for job in jobs))
    end.send(Cancel(jobs=[jobs[0].id]))
    beside = make_job(["fish", "storm"], model=ENCODER)
    end.submit(beside)
    assert end.answers(beside)[0].error is None
    found = end.wait_frame(Stats, lambda frame: bool(frame.sample.generated_tokens))
    assert found.sample.cache_bytes
    for job, result in zip(jobs[1:], end.answers(*jobs[1:]), strict=True):
        assert text_of(result).completion_tokens == 480
        parts = [part for part in end.parts if part.job == job.id]
        assert [part.number for part in parts] == list(range(len(parts)))
        assert result.number == len(parts)
    assert jobs[0].id not in end.results
    end.wait_frame(Progress, lambda frame: not frame.running)
    end.wait_frame(Stats, lambda frame: frame.sample.generating == 0)


def test_a_drained_worker_finishes_its_texts(worker: tuple[SidecarEnd, subprocess.Popen[bytes]]) -> None:
    end, _ = worker
    job = text_job("deep", tokens=300)
    end.submit(job)
    end.wait(lambda: begun(end, job))
    end.send(Drain())
    assert text_of(end.answers(job)[0]).completion_tokens == 300
    end.wait_frame(Stats, lambda frame: frame.sample.state is WorkerState.DRAINED)


def test_a_text_handed_back_is_made_again_with_the_same_parts(
    worker: tuple[SidecarEnd, subprocess.Popen[bytes]], records: list[ModelRecord], tmp_path: Path
) -> None:
    end, process = worker
    job = text_job("zwölf Fische", tokens=450)
    end.submit(job)
    end.wait(lambda: begun(end, job))
    process.send_signal(signal.SIGTERM)
    goodbye = end.wait_frame(Goodbye)
    assert goodbye.unstarted == [job.id]
    assert process.wait(20) == 0
    end.drop_connection()
    first = {part.number: text_of(part).text for part in end.parts}
    again = start_worker(end, dtype="float32")
    try:
        end.accept(timeout_s=120)
        end.start(*records)
        end.submit(job, text_job("beside it", tokens=100))
        whole = text_of(end.answers(job)[0])
        second = {part.number: text_of(part).text for part in end.parts if part.job == job.id}
    finally:
        again.kill()
        again.wait()
    assert first
    assert {number: second[number] for number in first} == first
    assert whole.completion_tokens == 450


def test_texts_of_a_lost_sidecar_are_dropped_and_their_memory_is_free(
    worker: tuple[SidecarEnd, subprocess.Popen[bytes]], records: list[ModelRecord]
) -> None:
    end, _ = worker
    job = text_job("storm", tokens=480)
    end.submit(job)
    end.wait(lambda: begun(end, job))
    end.drop_connection()
    end.accept()
    end.start(*records)
    end.wait_frame(Stats, lambda frame: frame.sample.generating == 0 and frame.sample.generated_tokens == 0)
    assert not end.parts
    after = text_job("storm", tokens=5, stream=False)
    end.submit(after)
    assert text_of(end.answers(after)[0]).completion_tokens == 5
