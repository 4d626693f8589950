"""Pipelines that sentence-transformers saved give the vectors that sentence-transformers gives."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from tests.unit.workers.families import load_family, write_model, write_pooling
from wire.errors import Code, ShoalError
from wire.jobs import EmbeddingInputs, EmbeddingOutputs, RerankInputs, RerankOutputs, Task
from workers.models import LoadedModel
from workers.models.sentence_files import SentenceSettings

TEXTS = ["fish", "a small shoal of fish turns as one before the storm", "deep water"]
MODES = [["cls"], ["max"], ["mean"], ["mean_sqrt_len_tokens"], ["weightedmean"], ["lasttoken"], ["cls", "mean"]]


def write_saved(folder: Path, *modes: str, dense: bool = False, prompts: dict[str, str] | None = None,
                default: str | None = None, include_prompt: bool = True) -> Any:  # fmt: skip
    """A pipeline over a tiny BERT, saved by sentence-transformers; returns its own model of it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules as parts
    from transformers import PreTrainedTokenizerFast

    plain = write_model(folder / "plain", "bert")
    fast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=Tokenizer.from_file(str(plain / "tokenizer.json")), pad_token="<pad>", unk_token="<unk>",
        cls_token="<s>", sep_token="</s>", model_max_length=24,
    )  # fmt: skip
    fast.save_pretrained(plain)
    torch.manual_seed(5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        body = parts.Transformer(str(plain))
        layers: list[Any] = [body, parts.Pooling(32, pooling_mode=list(modes), include_prompt=include_prompt)]
        if dense:
            layers += [parts.Dense(32 * len(modes), 12), parts.LayerNorm(12), parts.Normalize()]
        made = SentenceTransformer(modules=layers, prompts=prompts or {}, default_prompt_name=default, device="cpu")
        made.save(str(folder / "saved"))
    return made


def embed(model: LoadedModel, texts: list[str], prompt: str | None = None) -> Any:
    prepared = model.prepare(Task.EMBEDDINGS, EmbeddingInputs(texts, prompt_name=prompt))
    outputs = model.kind.finish(Task.EMBEDDINGS, model.forward(prepared.rows, [None] * len(prepared.rows)), prepared)
    assert isinstance(outputs, EmbeddingOutputs)
    assert outputs.dimension == model.kind.dimension
    return np.frombuffer(outputs.vectors, "<f4").reshape(-1, outputs.dimension)


@pytest.mark.parametrize("modes", MODES, ids="+".join)
def test_every_pooling(modes: list[str], tmp_path: Path) -> None:
    made = write_saved(tmp_path, *modes)
    model = load_family(tmp_path / "saved")
    assert model.kind.max_tokens == 24, "the tokenizer's own limit counts"
    np.testing.assert_allclose(embed(model, [*TEXTS, "storm " * 60]), made.encode([*TEXTS, "storm " * 60]), atol=1e-5)


def test_layers_behind_the_pooling(tmp_path: Path) -> None:
    made = write_saved(tmp_path, "mean", "max", dense=True)
    found = embed(load_family(tmp_path / "saved"), TEXTS)
    assert found.shape == (3, 12)
    np.testing.assert_allclose(found, made.encode(TEXTS), atol=1e-5)


@pytest.mark.parametrize("include", [True, False], ids=["pooled", "left out"])
@pytest.mark.parametrize("mode", ["mean", "weightedmean", "cls"])
def test_prompts_by_name_and_by_default(include: bool, mode: str, tmp_path: Path) -> None:
    prompts = {"query": "the storm: ", "document": "water "}
    made = write_saved(tmp_path, mode, prompts=prompts, default="document", include_prompt=include)
    model = load_family(tmp_path / "saved")
    for name in ("query", None):
        np.testing.assert_allclose(embed(model, TEXTS, name), made.encode(TEXTS, prompt_name=name), atol=1e-5)
    assert np.abs(embed(model, TEXTS, "query") - embed(model, TEXTS)).max() > 1e-3
    with pytest.raises(ShoalError, match="no prompt 'title'; it has document, query") as raised:
        embed(model, TEXTS, "title")
    assert raised.value.code is Code.INVALID_REQUEST


def test_a_kind_of_input_is_a_wish() -> None:
    settings = SentenceSettings(prompts={"query": "q: ", "passage": "p: "}, default_prompt="passage")
    assert settings.prompt(None, "query") == "q: "
    assert settings.prompt(None, "document") == settings.prompt(None, "clustering") == settings.prompt(None) == "p: "
    assert settings.prompt("query", "document") == "q: "
    assert SentenceSettings().prompt(None, "query") == ""


def test_a_bi_encoder_ranks_by_the_cosine_of_query_and_documents(tmp_path: Path) -> None:
    prompts = {"query": "the storm: ", "document": "water "}
    made = write_saved(tmp_path, "mean", prompts=prompts)
    model = load_family(tmp_path / "saved")
    prepared = model.prepare(Task.RERANK, RerankInputs("a small shoal", TEXTS))
    outputs = model.kind.finish(Task.RERANK, model.forward(prepared.rows, [None] * 4), prepared)
    assert isinstance(outputs, RerankOutputs)
    vectors = made.encode([prompts["query"] + "a small shoal", *[prompts["document"] + text for text in TEXTS]])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(outputs.scores, vectors[1:] @ vectors[0], atol=1e-5)


def test_a_pipeline_that_cannot_be_served_faithfully_is_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", "bert")
    write_pooling(folder, "median")
    with pytest.raises(ShoalError, match="pooling median is unknown") as raised:
        load_family(folder)
    assert raised.value.code is Code.MODEL_UNLOADABLE
    (folder / "modules.json").write_text(json.dumps([{"path": "", "type": "sentence_transformers.models.CNN"}]))
    with pytest.raises(ShoalError, match="module 'CNN'"):
        load_family(folder)
