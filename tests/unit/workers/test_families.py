"""Every family answers as plain transformers and PEFT do: alone, beside padding, and with packed adapters and heads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.workers.families import (
    DECODERS,
    ENCODERS,
    adapters_of,
    alone,
    load,
    load_family,
    plain_model,
    vector,
    with_head,
    with_peft,
    write_model,
)
from tests.unit.workers.generation.decoders import load_decoder, write_decoder
from wire.jobs import ClassifyInputs, ClassifyOutputs, EmbeddingInputs, Task
from wire.registry import ModelRecord
from workers.models import ModelOptions, load_model
from workers.models.heads import head_class

TOLERANCE = 1e-4
TEXTS = ["fish", "a small shoal of fish turns as one before the storm in deep water", "the storm", "deep water a b c d"]


@pytest.mark.parametrize("family", [*ENCODERS, *DECODERS])
def test_embeddings_of_any_mix_equal_peft(family: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", family)
    model = load_family(folder)
    rows = model.prepare(Task.EMBEDDINGS, EmbeddingInputs(TEXTS)).rows
    last = family in DECODERS
    expected: dict[str | None, list[Any]] = {
        None: [vector(plain_model(folder, family), row.ids, last=last) for row in rows]
    }
    for number, adapter in enumerate(adapters_of(model, 3)):
        digest = load(model, adapter, tmp_path)
        peft = with_peft(plain_model(folder, family), adapter, tmp_path / str(number))
        expected[digest] = [vector(peft, row.ids, last=last) for row in rows]
        assert np.abs(expected[digest][1] - expected[None][1]).max() > 100 * TOLERANCE, "the adapter does nothing"
    mix = [(owner, number) for number in range(len(TEXTS)) for owner in expected]
    found = model.forward([rows[number] for _, number in mix], [owner for owner, _ in mix])
    for (owner, number), output in zip(mix, found, strict=True):
        np.testing.assert_allclose(output, expected[owner][number], atol=TOLERANCE, rtol=TOLERANCE)
        (single,) = model.forward([rows[number]], [owner])
        np.testing.assert_allclose(single, expected[owner][number], atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("family", [*ENCODERS, *DECODERS])
def test_heads_of_two_tasks_beside_base_rows_equal_peft(family: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", family)
    model = load_family(folder)
    base = model.embed(TEXTS, [None] * len(TEXTS))
    tasks = [Task.TOKEN_CLASSIFY] if family == "t5" else [Task.CLASSIFY, Task.CLASSIFY, Task.TOKEN_CLASSIFY]
    rows, digests, expected = [], [], []
    for number, (adapter, task) in enumerate(zip(adapters_of(model, 3), tasks, strict=False)):
        labels = 2 + number
        torch.manual_seed(number)
        plain = plain_model(folder, family, head_class(task), num_labels=labels)
        digest = load(model, with_head(adapter, task, plain, labels), tmp_path)
        peft = with_peft(plain, adapter, tmp_path / str(number), prefix=f"{plain.base_model_prefix}.")
        for row in model.prepare(task, ClassifyInputs(TEXTS), head_of(model, digest)).rows:
            rows.append(row)
            digests.append(digest)
            expected.append(alone(peft, row.ids).logits[0].numpy())
    embedded = model.prepare(Task.EMBEDDINGS, EmbeddingInputs(TEXTS)).rows
    found = model.forward([*rows, *embedded], [*digests, *[None] * len(embedded)])
    for output, wanted in zip(found, expected, strict=False):
        np.testing.assert_allclose(output, wanted, atol=TOLERANCE, rtol=TOLERANCE)
    np.testing.assert_allclose(np.stack(found[len(rows) :]), base, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("family", ["bert", "roberta", "deberta-v2", "modernbert", "qwen3"])
def test_a_checkpoint_with_its_own_head_answers_with_it(family: str, tmp_path: Path) -> None:
    kind = head_class(Task.CLASSIFY)
    names = {0: "calm", 1: "rough", 2: "unknown"}
    folder = write_model(
        tmp_path / "model", family, kind=kind, id2label=names, label2id={n: i for i, n in names.items()}
    )
    model = load_family(folder)
    assert model.kind.tasks == (Task.CLASSIFY,)
    plain = plain_model(folder, family, kind)
    prepared = model.prepare(Task.CLASSIFY, ClassifyInputs(TEXTS))
    found = model.forward(prepared.rows, [None] * len(TEXTS))
    logits = torch.stack([alone(plain, row.ids).logits[0] for row in prepared.rows])
    outputs = model.kind.finish(Task.CLASSIFY, found, prepared)
    assert isinstance(outputs, ClassifyOutputs)
    assert outputs.labels == ["calm", "rough", "unknown"]
    np.testing.assert_allclose(outputs.scores, logits.softmax(-1).numpy(), atol=TOLERANCE)


def head_of(model: Any, digest: str) -> Any:
    return model.adapters.table.get(digest).head.header


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral"])
def test_a_model_that_continues_texts_also_runs_heads_that_adapters_bring(family: str, tmp_path: Path) -> None:
    folder = write_decoder(tmp_path / "model", family)
    model = load_decoder(folder)
    rows, digests, expected = [], [], []
    for number, (adapter, task) in enumerate(
        zip(adapters_of(model, 2), (Task.CLASSIFY, Task.TOKEN_CLASSIFY), strict=True)
    ):
        torch.manual_seed(number)
        plain = plain_model(folder, family, head_class(task), num_labels=3)
        inside = f"{plain.base_model_prefix}."
        digest = load(model, with_head(adapter, task, plain, 3), tmp_path)
        # the base model with its language head names its body as the class with a task head does
        assert all(path.startswith(inside) for path in adapter.parts)
        peft = with_peft(plain, adapter, tmp_path / str(number))
        for row in model.prepare(task, ClassifyInputs(TEXTS), head_of(model, digest)).rows:
            rows.append(row)
            digests.append(digest)
            expected.append(alone(peft, row.ids).logits[0].numpy())
    for output, wanted in zip(model.forward(rows, digests), expected, strict=True):
        np.testing.assert_allclose(output, wanted, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("family", ["llama", "bert"])
def test_a_merged_version_with_a_head_answers_as_the_packed_one(family: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    packed = load_decoder(write_decoder(folder)) if family == "llama" else load_family(write_model(folder, family))
    plain = plain_model(folder, family, head_class(Task.CLASSIFY), num_labels=3)
    adapter = with_head(adapters_of(packed, 1)[0], Task.CLASSIFY, plain, 3)
    digest = load(packed, adapter, tmp_path)
    record = ModelRecord(
        "team/moods@3", digest, f"path:{folder}", [Task.CLASSIFY], "default", 48, None, 0, team="team", artifact=digest
    )
    path = adapter.write_canonical(tmp_path)
    merged = load_model(record, options=ModelOptions(generation_bytes=1 << 24), artifact=path)
    assert merged.kind.tasks == (Task.CLASSIFY,)
    rows = merged.prepare(Task.CLASSIFY, ClassifyInputs(TEXTS)).rows
    found = merged.forward(rows, [None] * len(rows))
    np.testing.assert_allclose(np.stack(found), np.stack(packed.forward(rows, [digest] * len(rows))), atol=TOLERANCE)
