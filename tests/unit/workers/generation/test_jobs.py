"""Jobs that make text, through the worker's stages: streams, ends, cancellation, faults, and turns with batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from tests.artifacts import random_adapter
from tests.unit.workers.bench import Bench
from tests.unit.workers.generation.decoders import causal, decoder_record, greedy, plain, with_adapter, write_decoder
from wire.errors import Code
from wire.frames import Progress, Results
from wire.jobs import GenerateInputs, GenerateOutputs, Job, Message, Result, Sampling, Task
from wire.registry import ModelRecord
from workers.engine import shelf
from workers.engine.works import Work
from workers.generation.generator import StepBounds

BOUNDS = StepBounds(texts=8, chunk_tokens=16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_decoder(tmp_path_factory.mktemp("decoder"))


@pytest.fixture
def bench(folder: Path) -> Iterator[Bench]:
    made = Bench(decoder_record(folder), step_bounds=BOUNDS)
    made.start_tokenizer()
    made.start_loaders()
    yield made
    made.end()
    assert not made.failures, made.failures


def text_job(bench: Bench, prompt: str, *, stream: bool = False, adapter: str | None = None, **sampling: Any) -> Job:
    wanted = {"temperature": 0.0, "max_tokens": 20} | sampling
    inputs = GenerateInputs(prompt=prompt, sampling=Sampling(**wanted), stream=stream)
    return msgspec.structs.replace(bench.job([]), task=Task.GENERATE, inputs=inputs, adapter_digest=adapter)


def outputs(result: Result) -> GenerateOutputs:
    assert isinstance(result.outputs, GenerateOutputs), result.error
    return result.outputs


def parts_of(bench: Bench, job: Job) -> list[Result]:
    found = [result for frame in bench.frames if isinstance(frame, Results) for result in frame.results]
    return [result for result in found if result.job == job.id]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < limit, what
        time.sleep(0.005)


def endless(work: Work, bench: Bench) -> None:
    """Wait until a text is in the making."""
    wait_until(lambda: work.started is not None and work.compute_s > 0, "the text does not start")


def test_a_stream_s_parts_are_numbered_and_join_to_the_whole(bench: Bench) -> None:
    jobs = [text_job(bench, "zwölf Fische", stream=stream, temperature=1.0, seed=3) for stream in (True, False)]
    for job in jobs:
        bench.submit(job)
    bench.start_device()
    last, whole = map(outputs, bench.wait_for(*jobs))
    parts = parts_of(bench, jobs[0])
    assert [part.number for part in parts] == list(range(len(parts)))
    assert [part.final for part in parts] == [False] * (len(parts) - 1) + [True]
    assert len(parts) > 3
    assert "".join(outputs(part).text for part in parts) == whole.text
    assert [outputs(part).finish_reason for part in parts[:-1]] == [None] * (len(parts) - 1)
    assert last.finish_reason == whole.finish_reason is not None
    assert (last.prompt_tokens, last.completion_tokens) == (whole.prompt_tokens, whole.completion_tokens)
    assert whole.prompt_tokens == len("zwölf Fische".encode())
    assert parts[-1].batch_rows >= 1


def test_the_same_seed_gives_the_same_text_alone_and_in_a_busy_batch_and_each_job_has_its_own(bench: Bench) -> None:
    heated: dict[str, Any] = {"temperature": 0.8, "top_p": 0.95, "max_tokens": 30, "ignore_eos": True}
    alone = text_job(bench, "the sea", seed=7, **heated)
    bench.submit(alone)
    bench.start_device()
    (expected,) = bench.wait_for(alone)
    seeded = [text_job(bench, "the sea", seed=7, **heated) for _ in range(3)]
    without = [text_job(bench, "the sea", **heated) for _ in range(3)]
    again = text_job(bench, "the sea", **heated)
    for job in (*seeded, *without):
        bench.submit(job)
    texts = [outputs(result).text for result in bench.wait_for(*seeded, *without)]
    assert texts[:3] == [outputs(expected).text] * 3
    assert len(set(texts[3:])) == 3
    # a job that is run again, for its worker died, makes the same text: its seed comes from its id
    rerun = msgspec.structs.replace(again, id=without[0].id)
    del bench.results[rerun.id]
    bench.submit(rerun)
    assert outputs(bench.wait_for(rerun)[0]).text == texts[3]


def test_texts_end_at_stop_strings_and_limits_with_the_reason(bench: Bench, folder: Path) -> None:
    probe = text_job(bench, "fish", max_tokens=24, ignore_eos=True)
    bench.submit(probe)
    bench.start_device()
    whole = outputs(bench.wait_for(probe)[0])
    assert (whole.finish_reason, whole.completion_tokens) == ("length", 24)
    stop = whole.text[4:7]
    stopped = text_job(bench, "fish", max_tokens=24, ignore_eos=True, stop=["never there", stop], stream=True)
    bench.submit(stopped)
    last = outputs(bench.wait_for(stopped)[0])
    assert last.finish_reason == "stop"
    joined = "".join(outputs(part).text for part in parts_of(bench, stopped))
    assert joined == whole.text[: whole.text.index(stop)]
    assert last.completion_tokens < 24


def test_logprobs_name_every_token_and_the_likeliest_beside_it(bench: Bench) -> None:
    job = text_job(bench, "storm", logprobs=3, max_tokens=10, ignore_eos=True, stream=True)
    bench.submit(job)
    bench.start_device()
    bench.wait_for(job)
    found = [entry for part in parts_of(bench, job) for entry in outputs(part).logprobs]
    assert len(found) == 10
    for entry in found:
        assert len(entry.top) == 3
        assert entry.top[0][0] == entry.token, "greedy is the likeliest"
        assert entry.top[0][1] == pytest.approx(entry.logprob)
        assert 0 >= entry.top[0][1] >= entry.top[1][1] >= entry.top[2][1]


def test_a_cancelled_text_frees_its_row_and_says_no_more(bench: Bench) -> None:
    jobs = [text_job(bench, "deep water", max_tokens=400, ignore_eos=True, stream=True) for _ in range(2)]
    works = [bench.submit(job) for job in jobs]
    bench.wait_ready(*works)
    bench.start_device()
    for work in works:
        endless(work, bench)
    cache = causal(bench.model).cache
    assert sum(len(slab.leases) for slab in cache.slabs) == 2
    assert bench.room.generating() == 2
    bench.room.cancel([jobs[0].id])
    wait_until(lambda: sum(len(slab.leases) for slab in cache.slabs) == 1, "the row is not free")
    said = len(parts_of(bench, jobs[0]))
    (result,) = bench.wait_for(jobs[1])
    assert outputs(result).completion_tokens == 400
    # one step may have been on its way
    assert len(parts_of(bench, jobs[0])) <= said + 1
    assert jobs[0].id not in bench.results
    wait_until(lambda: not cache.slabs, "the row is not free")


def test_a_text_that_ended_between_two_steps_does_not_keep_its_model(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "UNLISTED_KEPT_S", 0.0)
    job = text_job(bench, "deep water", max_tokens=480, ignore_eos=True)
    bench.submit(late := msgspec.structs.replace(job, deadline=time.time() + 0.5))
    bench.start_device()
    bench.wait_for(late)
    bench.shelf.set_records([])
    wait_until(lambda: not bench.shelf.loaded(), "the model stays")


def test_a_deadline_that_passes_ends_the_text_with_its_reason(bench: Bench) -> None:
    job = text_job(bench, "deep", max_tokens=480, ignore_eos=True)
    late = msgspec.structs.replace(job, deadline=time.time() + 0.4)
    kind = causal(bench.model)
    run = kind.run

    def slow(layout: Any, adapters: Any) -> torch.Tensor:
        time.sleep(0.02)
        return run(layout, adapters)

    kind.run = slow  # type: ignore[method-assign]
    bench.submit(late)
    bench.start_device()
    (result,) = bench.wait_for(late)
    assert result.error is not None
    assert result.error.code is Code.DEADLINE_EXCEEDED
    assert "of at most 480 tokens" in result.error.message
    wait_until(lambda: not kind.cache.slabs, "the row is not free")


def test_a_text_whose_numbers_are_not_finite_fails_alone(bench: Bench, folder: Path, tmp_path: Path) -> None:
    path = "model.layers.0.self_attn.v_proj"
    wild = random_adapter(bench.model.adapters.shapes, {path: 2}, seed=1, strength=1e39)
    file = wild.write_canonical(tmp_path)
    bad = [text_job(bench, f"fish {n}", adapter=wild.digest) for n in range(2)]
    good = [text_job(bench, f"fish {n}") for n in range(3)]
    for job in (bad[0], *good, bad[1]):
        bench.submit(job, file)
    bench.start_device()
    for result in bench.wait_for(*bad):
        assert result.error is not None
        assert result.error.code is Code.NONFINITE_OUTPUT
    module = plain(folder)
    for job, result in zip(good, bench.wait_for(*good), strict=True):
        assert isinstance(job.inputs, GenerateInputs)
        made = greedy(module, list(_prompt(bench, job)), 20)
        assert outputs(result).completion_tokens == len(made)
    # the rows that held them are used again
    after = text_job(bench, "fish 0")
    bench.submit(after)
    assert outputs(bench.wait_for(after)[0]).text == outputs(bench.results[good[0].id]).text


def _prompt(bench: Bench, job: Job) -> list[int]:
    assert isinstance(job.inputs, GenerateInputs)
    return bench.model.prepare(Task.GENERATE, job.inputs).rows[0].ids


def test_short_memory_makes_less_at_once_and_fails_only_what_cannot_fit_alone(bench: Bench) -> None:
    kind = causal(bench.model)
    run = kind.run
    shortages = 0

    def limited(layout: Any, adapters: Any) -> torch.Tensor:
        nonlocal shortages
        if layout.ids.shape[1] > 9 or len(layout.answers) > 3 or int(layout.places.max()) > 60:
            shortages += 1
            raise torch.OutOfMemoryError("out of memory")
        return run(layout, adapters)

    prompts = ["a", "b", "a prompt that is cut into smaller parts", "d", "e", "f"]
    jobs = [text_job(bench, prompt) for prompt in prompts]
    long = text_job(bench, "a long prompt of which the last tokens never fit, whatever gives way for it")
    for job in jobs:
        bench.submit(job)
    bench.start_device()
    expected = [outputs(result).text for result in bench.wait_for(*jobs)]
    kind.run = limited  # type: ignore[method-assign]
    again = [text_job(bench, prompt) for prompt in prompts]
    for job in (*again[:3], long, *again[3:]):
        bench.submit(job)
    assert [outputs(result).text for result in bench.wait_for(*again)] == expected
    (refused,) = bench.wait_for(long)
    assert refused.error is not None
    assert refused.error.code is Code.OUT_OF_MEMORY
    assert 0 < shortages < 100, "what did not fit was tried over and over"


def test_adapters_come_cold_and_stay_while_their_texts_are_made(bench: Bench, folder: Path, tmp_path: Path) -> None:
    paths = list(bench.model.adapters.shapes)[:4]
    adapters = [
        random_adapter(bench.model.adapters.shapes, dict.fromkeys(paths, 2 + n), seed=n, strength=3.0) for n in range(3)
    ]
    jobs = [text_job(bench, "turns as one", adapter=one.digest, max_tokens=40) for one in adapters]
    for job, one in zip(jobs, adapters, strict=True):
        bench.submit(job, one.write_canonical(tmp_path))
    bench.start_device()
    for one, job, result in zip(adapters, jobs, bench.wait_for(*jobs), strict=True):
        made = greedy(with_adapter(folder, one, tmp_path / one.digest), _prompt(bench, job), 40)
        assert outputs(result).completion_tokens == len(made)
        assert result.adapter_digest == one.digest
    assert set(bench.model.adapters.table.digests()) == {one.digest for one in adapters}


def test_a_long_prompt_keeps_running_texts_waiting_for_no_more_than_a_chunk(bench: Bench) -> None:
    kind = causal(bench.model)
    run = kind.run
    steps: list[tuple[int, int]] = []

    def noted(layout: Any, adapters: Any) -> torch.Tensor:
        steps.append((layout.ids.shape[1], len(layout.answers)))
        return run(layout, adapters)

    kind.run = noted  # type: ignore[method-assign]
    running = text_job(bench, "fish", max_tokens=200, ignore_eos=True)
    work = bench.submit(running)
    bench.wait_ready(work)
    bench.start_device()
    endless(work, bench)
    long = text_job(bench, "storm " * 60, max_tokens=1)
    bench.submit(long)
    bench.wait_for(long, running)
    with_chunk = [step for step in steps if step[0] > 1][1:]
    assert len(with_chunk) >= 360 // 16
    assert max(tokens for tokens, _ in with_chunk) <= 17
    assert all(answered >= 1 for _, answered in with_chunk), "a step without a token for the running text"


def test_batches_and_texts_take_turns(bench: Bench, tiny_record: ModelRecord) -> None:
    bench.shelf.set_records([bench.model.record, tiny_record])
    bench.add_model(tiny_record)
    text = text_job(bench, "fish", max_tokens=450, ignore_eos=True, stream=True)
    work = bench.submit(text)
    bench.wait_ready(work)
    bench.start_device()
    endless(work, bench)
    for _ in range(20):  # answered one after the other, all while the text is made
        job = bench.job(["fish", "storm"], model=tiny_record.id)
        bench.submit(job)
        assert bench.wait_for(job)[0].error is None
    assert text.id not in bench.results
    flood = [bench.job(["deep water"] * 40, model=tiny_record.id) for _ in range(40)]
    before = len(parts_of(bench, text))
    for job in flood:
        bench.submit(job)
    bench.wait_for(*flood)
    assert len(parts_of(bench, text)) > before, "a flood of batches stopped the text"
    assert outputs(bench.wait_for(text)[0]).completion_tokens == 450


def test_progress_names_texts_in_the_making(bench: Bench) -> None:
    job = text_job(bench, "fish", max_tokens=100, ignore_eos=True)
    bench.submit(job)
    bench.start_device()
    bench.wait_for(job)
    assert any(isinstance(frame, Progress) and frame.running == [job.id] for frame in bench.frames)


def test_a_chat_goes_through_the_template_and_bad_prompts_are_refused(bench: Bench) -> None:
    def chat(*turns: tuple[str, str]) -> Job:
        messages = [Message(role, content) for role, content in turns]
        inputs = GenerateInputs(messages=messages, sampling=Sampling(temperature=0.0, max_tokens=3))
        return msgspec.structs.replace(bench.job([]), task=Task.GENERATE, inputs=inputs)

    good = chat(("system", "short"), ("user", "hello"))
    cases = {
        Code.INPUT_EMPTY: text_job(bench, ""),
        Code.INPUT_TOO_LONG: text_job(bench, "a" * 512),
        Code.INVALID_REQUEST: chat(("tool", "x")),
    }
    for job in (good, *cases.values()):
        bench.submit(job)
    bench.start_device()
    (answer,) = bench.wait_for(good)
    assert outputs(answer).prompt_tokens == len("<system>short<user>hello<assistant>")
    for code, job in cases.items():
        (result,) = bench.wait_for(job)
        assert result.error is not None
        assert result.error.code is code
    too_long = bench.results[cases[Code.INPUT_TOO_LONG].id].error
    assert too_long is not None
    assert too_long.message.count("512") == 2
    near = text_job(bench, "a" * 508, max_tokens=100, ignore_eos=True)
    bench.submit(near)
    assert outputs(bench.wait_for(near)[0]).completion_tokens == 4, "the model's limit ends the text"


def test_a_tokenizer_without_a_template_says_so(tmp_path: Path) -> None:
    bench = Bench(decoder_record(write_decoder(tmp_path, template=None)))
    inputs = GenerateInputs(messages=[Message("user", "hello")])
    job = msgspec.structs.replace(bench.job([]), task=Task.GENERATE, inputs=inputs)
    bench.start_tokenizer()
    bench.submit(job)
    (result,) = bench.wait_for(job)
    bench.end()
    assert result.error is not None
    assert "has no chat template" in result.error.message


def test_a_text_that_finds_no_memory_while_no_other_is_made_is_refused(bench: Bench) -> None:
    kind = causal(bench.model)
    lease = kind.cache.lease
    kind.cache.lease = lambda tokens: None  # type: ignore[method-assign]
    job = text_job(bench, "fish")
    bench.submit(job)
    bench.start_device()
    (result,) = bench.wait_for(job)
    assert result.error is not None
    assert result.error.code is Code.OUT_OF_MEMORY
    kind.cache.lease = lease  # type: ignore[method-assign]
    again = text_job(bench, "fish")
    bench.submit(again)
    assert bench.wait_for(again)[0].error is None
