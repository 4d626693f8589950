"""Jobs of every task through the worker's stages, from a cold adapter's file to the answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from tests.artifacts import RandomAdapter
from tests.unit.workers.bench import Bench
from tests.unit.workers.families import adapters_of, plain_model, with_head, write_model
from wire.errors import Code
from wire.jobs import (
    ClassifyInputs,
    ClassifyOutputs,
    EmbeddingOutputs,
    Inputs,
    Job,
    RerankInputs,
    RerankOutputs,
    Task,
    TokenClassifyOutputs,
)
from wire.registry import ModelRecord
from workers.models.heads import head_class

TEXTS = ["a small shoal of fish", "the storm"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", "bert")


@pytest.fixture
def bench(folder: Path) -> Iterator[Bench]:
    made = Bench(ModelRecord("test/tiny", "", f"path:{folder}", [Task.EMBEDDINGS], "default", 48, 32, 0))
    made.start_tokenizer()
    made.start_loaders()
    made.start_device()
    yield made
    made.end()


def headed(bench: Bench, folder: Path, task: Task, labels: int, number: int) -> RandomAdapter:
    torch.manual_seed(number)
    plain = plain_model(folder, "bert", head_class(task), num_labels=labels)
    return with_head(adapters_of(bench.model, number + 1)[number], task, plain, labels)


def job(bench: Bench, task: Task, inputs: Inputs, adapter: RandomAdapter | None = None) -> Job:
    made = bench.job(TEXTS, adapter=adapter.digest if adapter is not None else None)
    return msgspec.structs.replace(made, task=task, inputs=inputs)


def test_cold_adapters_with_heads_of_three_tasks_and_base_rows(bench: Bench, folder: Path, tmp_path: Path) -> None:
    classes = headed(bench, folder, Task.CLASSIFY, 3, 0)
    spans = headed(bench, folder, Task.TOKEN_CLASSIFY, 5, 1)
    pairs = headed(bench, folder, Task.CLASSIFY, 1, 2)
    plain = bench.model.embed(TEXTS, [None, None])
    wanted: list[tuple[Task, Inputs, RandomAdapter | None]] = [
        (Task.EMBEDDINGS, bench.job(TEXTS).inputs, None),
        (Task.CLASSIFY, ClassifyInputs(TEXTS), classes),
        (Task.TOKEN_CLASSIFY, ClassifyInputs(TEXTS), spans),
        (Task.RERANK, RerankInputs("fish", TEXTS), pairs),
        (Task.RERANK, RerankInputs("fish", TEXTS), None),
    ]
    jobs = [job(bench, *one) for one in wanted]
    for made, (_, _, adapter) in zip(jobs, wanted, strict=True):
        bench.submit(made, adapter.write_canonical(tmp_path) if adapter is not None else None)
    outputs: list[Any] = [result.outputs for result in bench.wait_for(*jobs)]
    kinds = [EmbeddingOutputs, ClassifyOutputs, TokenClassifyOutputs, RerankOutputs, RerankOutputs]
    assert [type(one) for one in outputs] == kinds
    np.testing.assert_allclose(np.frombuffer(outputs[0].vectors, "<f4").reshape(2, -1), plain, atol=1e-5)
    assert outputs[1].labels == ["L0", "L1", "L2"]
    assert [len(scores) for scores in outputs[1].scores] == [3, 3]
    assert len(outputs[2].entities) == 2
    assert np.abs(np.array(outputs[3].scores) - outputs[4].scores).max() > 1e-3


def test_the_same_answer_whether_the_adapter_is_cold_or_resident(bench: Bench, folder: Path, tmp_path: Path) -> None:
    adapter = headed(bench, folder, Task.CLASSIFY, 3, 0)
    path = adapter.write_canonical(tmp_path)
    found: list[Any] = []
    for _ in range(2):
        one = job(bench, Task.CLASSIFY, ClassifyInputs(TEXTS), adapter)
        bench.submit(one, path)
        found.append(bench.wait_for(one)[0].outputs)
    np.testing.assert_allclose(found[0].scores, found[1].scores, atol=1e-6)
    resident = bench.model.adapters.table.get(adapter.digest)
    assert resident is not None
    assert resident.head is not None
    assert resident.size_bytes > resident.head.size_bytes > 0


@pytest.mark.parametrize(("task", "labels"), [(Task.CLASSIFY, 3), (Task.TOKEN_CLASSIFY, 3), (Task.RERANK, 1)])
def test_a_head_that_gives_nan_fails_its_own_job_alone(
    bench: Bench, folder: Path, tmp_path: Path, task: Task, labels: int
) -> None:
    adapter = headed(bench, folder, Task.TOKEN_CLASSIFY if task is Task.TOKEN_CLASSIFY else Task.CLASSIFY, labels, 0)
    adapter.head_tensors["classifier.weight"].fill_(torch.inf)
    adapter = RandomAdapter(adapter.parts, head=adapter.head, head_tensors=adapter.head_tensors)
    inputs: Inputs = RerankInputs("fish", TEXTS) if task is Task.RERANK else ClassifyInputs(TEXTS)
    bad, good = job(bench, task, inputs, adapter), bench.job(TEXTS)
    bench.submit(bad, adapter.write_canonical(tmp_path))
    bench.submit(good)
    failed, answered = bench.wait_for(bad, good)
    assert failed.error is not None
    assert failed.error.code is Code.NONFINITE_OUTPUT
    assert answered.error is None


def test_a_task_that_the_version_does_not_do_is_refused(bench: Bench, folder: Path, tmp_path: Path) -> None:
    adapter = headed(bench, folder, Task.CLASSIFY, 3, 0)
    asked = job(bench, Task.RERANK, RerankInputs("fish", TEXTS), adapter)
    bench.submit(asked, adapter.write_canonical(tmp_path))
    error = bench.wait_for(asked)[0].error
    assert error is not None
    assert (error.code, error.message) == (
        Code.TASK_UNSUPPORTED,
        "The version's head does not do rerank, it does classify.",
    )
