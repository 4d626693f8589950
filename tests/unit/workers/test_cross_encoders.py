"""Reranking with a head of one output: a checkpoint's own, and one that an adapter brings."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from tests.unit.workers.families import (
    adapters_of,
    alone,
    load,
    load_family,
    plain_model,
    with_head,
    with_peft,
    write_model,
)
from wire.errors import Code, ShoalError
from wire.jobs import ClassifyInputs, RerankInputs, RerankOutputs, Task
from workers.models import LoadedModel
from workers.models.heads import head_class

QUERY = "a small shoal of fish"
DOCUMENTS = ["fish", "the storm in deep water " * 9, "one shoal turns as one", "a " * 60]


def scores_of(model: LoadedModel, digest: str | None = None, **inputs: Any) -> RerankOutputs:
    resident = model.adapters.table.get(digest) if digest else None
    head = resident.head.header if resident is not None and resident.head is not None else None
    prepared = model.prepare(Task.RERANK, RerankInputs(QUERY, DOCUMENTS, **inputs), head)
    rows = model.forward(prepared.rows, [digest] * len(prepared.rows))
    outputs = model.kind.finish(Task.RERANK, rows, prepared, head)
    assert isinstance(outputs, RerankOutputs)
    return outputs


@pytest.mark.parametrize("activation", ["Sigmoid", "Identity"])
@pytest.mark.parametrize("family", ["bert", "roberta", "qwen3"])
def test_scores_are_those_of_sentence_transformers(family: str, activation: str, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder
    from transformers import PreTrainedTokenizerFast

    named = {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}
    more: dict[str, Any] = named if activation == "Identity" else {}
    folder = write_model(tmp_path / "model", family, kind=head_class(Task.CLASSIFY), num_labels=1, **more)
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>"}
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=Tokenizer.from_file(str(folder / "tokenizer.json")), model_max_length=40, **names,
        model_input_names=["input_ids", "attention_mask", *(["token_type_ids"] if family == "bert" else [])],
    ).save_pretrained(folder)  # fmt: skip
    model = load_family(folder)
    assert model.kind.tasks == (Task.RERANK, Task.CLASSIFY)
    outputs = scores_of(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = CrossEncoder(str(folder), device="cpu")
        expected = theirs.predict([(QUERY, document) for document in DOCUMENTS])
    np.testing.assert_allclose(outputs.scores, expected, atol=1e-5)
    assert outputs.truncated == 2
    with pytest.raises(ShoalError, match=r"Input 1 has .* with the query, the limit of the model is 40") as raised:
        scores_of(model, truncate=False)
    assert raised.value.code is Code.INPUT_TOO_LONG


def test_an_adapter_s_head_of_one_output_reads_query_and_document_together(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", "bert")
    model = load_family(folder)
    torch.manual_seed(3)
    plain = plain_model(folder, "bert", head_class(Task.CLASSIFY), num_labels=1)
    (adapter,) = adapters_of(model, 1)
    digest = load(model, with_head(adapter, Task.CLASSIFY, plain, 1), tmp_path)
    peft = with_peft(plain, adapter, tmp_path / "peft", prefix="bert.")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    expected = []
    for document in (DOCUMENTS[0], DOCUMENTS[2]):
        pair = tokenizer.encode(QUERY, document)
        assert 1 in pair.type_ids
        expected.append(torch.sigmoid(alone(peft, pair.ids, pair.type_ids).logits[0, 0]).item())
    found = scores_of(model, digest).scores
    np.testing.assert_allclose([found[0], found[2]], expected, atol=1e-5)
    base = scores_of(model).scores
    assert np.abs(np.array(base) - found).max() > 1e-2, "base rows are ranked by their embeddings"


def test_a_task_that_neither_model_nor_head_does_names_those_they_do(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", "bert")
    model = load_family(folder)
    with pytest.raises(ShoalError, match="does not do classify, it does embeddings, rerank") as raised:
        model.prepare(Task.CLASSIFY, ClassifyInputs(["fish"]))
    assert raised.value.code is Code.TASK_UNSUPPORTED
    (adapter,) = adapters_of(model, 1)
    plain = plain_model(folder, "bert", head_class(Task.TOKEN_CLASSIFY), num_labels=3)
    head = with_head(adapter, Task.TOKEN_CLASSIFY, plain, 3).head
    with pytest.raises(ShoalError, match="head does not do rerank, it does token-classify"):
        model.prepare(Task.RERANK, RerankInputs(QUERY, DOCUMENTS), head)


def test_a_head_that_does_not_fit_is_refused_with_the_reason(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", "bert")
    model = load_family(folder)
    plain = plain_model(folder, "bert", head_class(Task.CLASSIFY), num_labels=3)
    (adapter,) = adapters_of(model, 1)
    with pytest.raises(ShoalError, match=r"head does not fit BertForSequenceClassification.*\[3, 32\]") as raised:
        load(model, with_head(adapter, Task.CLASSIFY, plain, 2), tmp_path)
    assert raised.value.code is Code.ADAPTER_UNLOADABLE
    assert len(model.adapters.table) == 0
