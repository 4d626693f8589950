"""The base model: which one, whether names and shapes fit it, and what it serves."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.unit.validation.uploads import (
    DECODER,
    ENCODER,
    PREFIX,
    adapter,
    configuration,
    decoder_manifest,
    encoder_manifest,
    lora,
    paths,
    refusal,
    rows_of,
    stored,
)
from wire.reports import Finding, Outcome
from wire.validation import SandboxReply


def question(reply: SandboxReply, *choices: str) -> None:
    assert not reply.report.failed
    assert set(rows_of(reply, Outcome.ASK)) == {Finding.BASE_MODEL_UNKNOWN}
    assert reply.report.question is not None
    assert reply.report.question.field == "base_model"
    assert reply.report.question.choices == list(choices)
    assert reply.probe is None


@pytest.mark.parametrize("named", [None, "", "/home/someone/checkpoints/base", "acme/private-encoder", ...])
def test_unknown_base_is_asked_for_among_those_that_fit(tmp_path: Path, named: object) -> None:
    upload = adapter(config=configuration(base_model_name_or_path=named))
    upload.manifests = [decoder_manifest(), encoder_manifest("wide/encoder", 128), encoder_manifest()]
    question(upload.examine(tmp_path), ENCODER)


def test_an_unregistered_answer_is_asked_for_again(tmp_path: Path) -> None:
    upload = adapter()
    upload.wanted = "no/such"
    question(upload.examine(tmp_path), ENCODER)


def test_nothing_registered_fits(tmp_path: Path) -> None:
    upload = adapter(config=configuration(base_model_name_or_path="acme/encoder"))
    upload.manifests = [encoder_manifest("wide/encoder", 128)]
    refusal(upload.examine(tmp_path), Finding.BASE_MODEL_UNKNOWN, "acme/encoder", "wide/encoder")


def test_made_for_a_larger_sibling(tmp_path: Path) -> None:
    large = encoder_manifest("tiny/encoder-large", 128, layers=4)
    upload = adapter(lora(paths("query", "value", manifest=large), large))
    upload.manifests = [encoder_manifest(), large]
    reply = upload.examine(tmp_path)
    refusal(reply, Finding.SHAPE_MISMATCH, "fits tiny/encoder-large", "A 4×128", "64 inputs", "4 more modules")
    assert rows_of(reply, Outcome.FAIL)[Finding.SHAPE_MISMATCH].found.count("A 4×128") == 3


def test_larger_sibling_that_is_not_registered(tmp_path: Path) -> None:
    large = encoder_manifest("tiny/encoder-large", 128)
    reply = adapter(lora(paths("query", manifest=large), large)).examine(tmp_path)
    refusal(reply, Finding.SHAPE_MISMATCH, "hidden size 128")


def test_part_of_the_modules_match(tmp_path: Path) -> None:
    deep = encoder_manifest(layers=3)
    reply = adapter(lora(paths("query", "value", manifest=deep), deep)).examine(tmp_path)
    refusal(reply, Finding.PARTIAL_MATCH, "4/6", "encoder.layer.2.attention.self.query")


def test_no_module_matches(tmp_path: Path) -> None:
    decoder = decoder_manifest()
    reply = adapter(lora(paths("q_proj", manifest=decoder), decoder)).examine(tmp_path)
    refusal(reply, Finding.ADAPTER_INERT, "None of 2 modules", "q_proj", f"fits {DECODER}")


@pytest.mark.parametrize("name", ["lm_head.weight", "encoder.layer.9.output.dense.weight", "pooler.dense.weight"])
def test_whole_weights_that_the_base_does_not_have(tmp_path: Path, name: str) -> None:
    tensors = lora(paths("query")) | {PREFIX + name: stored(np.ones((100, 64)))}
    refusal(adapter(tensors).examine(tmp_path), Finding.FULL_WEIGHT_IN_ADAPTER, name, "100×64", "not in the base")


def test_layers_under_another_name_are_those_of_another_model(tmp_path: Path) -> None:
    tensors = {
        name.replace("encoder.layer", "model.layers"): tensor for name, tensor in lora(paths("query", "value")).items()
    }
    refusal(adapter(tensors).examine(tmp_path), Finding.ADAPTER_INERT, "None of 4 modules", "model.layers.0")


def test_whole_weights_of_another_shape(tmp_path: Path) -> None:
    name = "encoder.layer.0.output.dense.weight"
    tensors = lora(paths("query")) | {PREFIX + name: stored(np.ones((64, 64)))}
    refusal(adapter(tensors).examine(tmp_path), Finding.FULL_WEIGHT_IN_ADAPTER, name, "64×64", "64×256")


def test_resized_embeddings_name_the_tokens(tmp_path: Path) -> None:
    tensors = lora(paths("query")) | {f"{PREFIX}embeddings.word_embeddings.weight": stored(np.ones((102, 64)))}
    upload = adapter(tensors)
    upload.files["added_tokens.json"] = json.dumps({"<tool>": 100, "<end>": 101}).encode()
    refusal(upload.examine(tmp_path), Finding.VOCAB_RESIZED, "102×64", "100×64", "'<tool>' (100)", "'<end>' (101)")


def test_layers_that_the_configuration_excludes(tmp_path: Path) -> None:
    config = configuration(target_modules=["query"], layers_to_transform=[0])
    refusal(adapter(lora(paths("query")), config).examine(tmp_path), Finding.CONFIG_INVALID, "layer 1")


def test_modules_that_target_modules_does_not_list_are_noted(tmp_path: Path) -> None:
    reply = adapter(config=configuration(target_modules=["query"])).examine(tmp_path)
    assert not reply.report.failed
    assert "value" in rows_of(reply, Outcome.NOTE)[Finding.TARGETS_RESOLVED].found


def test_resized_embeddings_name_the_tokens_of_any_tokenizer_file(tmp_path: Path) -> None:
    tensors = lora(paths("query")) | {f"{PREFIX}embeddings.word_embeddings.weight": stored(np.ones((103, 64)))}
    upload = adapter(tensors)
    decoder = {"added_tokens_decoder": {"99": {"content": "old"}, "100": {"content": "<a>"}, "x": 1}}
    upload.files["tokenizer_config.json"] = json.dumps(decoder).encode()
    added = {"added_tokens": [{"id": 101, "content": "<b>"}, {"id": "no"}, {"id": 500, "content": "<far>"}, 7]}
    upload.files["tokenizer.json"] = json.dumps(added).encode()
    reply = upload.examine(tmp_path)
    refusal(reply, Finding.VOCAB_RESIZED, "'<a>' (100)", "'<b>' (101)")
    assert "far" not in rows_of(reply, Outcome.FAIL)[Finding.VOCAB_RESIZED].found


def test_resized_embeddings_without_a_tokenizer_give_the_numbers(tmp_path: Path) -> None:
    decoder = decoder_manifest()
    tensors = lora(paths("q_proj", manifest=decoder), decoder)
    tensors[f"{PREFIX}lm_head.weight"] = stored(np.ones((104, 64)))
    config = configuration(base_model_name_or_path=DECODER, target_modules=["q_proj"])
    refusal(adapter(tensors, config).examine(tmp_path), Finding.VOCAB_RESIZED, "lm_head", "Rows 100 to 103")


def test_adapter_of_a_headless_decoder_matches_the_decoder_with_its_head(tmp_path: Path) -> None:
    decoder = decoder_manifest()
    tensors = {
        name.replace("model.model.", "model."): tensor
        for name, tensor in lora(paths("q_proj", manifest=decoder), decoder).items()
    }
    config = configuration(base_model_name_or_path=DECODER, target_modules=["q_proj"])
    reply = adapter(tensors, config).examine(tmp_path)
    assert any(row.code is Finding.KEYS_NORMALISED and "'model.'" in row.found for row in reply.report.rows)


def test_embedding_layer_as_a_target(tmp_path: Path) -> None:
    tensors = lora(["embeddings.word_embeddings"])
    refusal(adapter(tensors).examine(tmp_path), Finding.VARIANT_UNSUPPORTED, "embeddings.word_embeddings")
