"""Classifier and decoder adapters: the head, its labels, and bases for other tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.unit.validation.test_merged import header_of, peft_files
from tests.unit.validation.uploads import (
    DECODER,
    ENCODER,
    PREFIX,
    Upload,
    acceptance,
    adapter,
    configuration,
    decoder_manifest,
    encoder_manifest,
    lora,
    paths,
    refusal,
    stored,
)
from wire.jobs import Task
from wire.registry import Mode
from wire.reports import Finding


def classifier(
    labels: int = 3,
    *,
    task_type: str | None = "SEQ_CLS",
    prefix: str = "bert.",
    config_json: Any = None,
    **changes: Any,
) -> Upload:
    """A LoRA of the encoder with a head, saved by PEFT from a BertForSequenceClassification."""
    tensors = lora(paths("query", "value"), prefix=f"{PREFIX}{prefix}")
    tensors[f"{PREFIX}classifier.weight"] = stored(np.arange(labels * 64, dtype="<f4").reshape(labels, 64))
    tensors[f"{PREFIX}classifier.bias"] = stored(np.ones(labels))
    upload = adapter(tensors, configuration(task_type=task_type, modules_to_save=["classifier", "score"], **changes))
    if config_json is not None:
        upload.files["config.json"] = json.dumps(config_json).encode()
    return upload


def id2label(*names: str) -> dict[str, Any]:
    return {"id2label": {str(number): name for number, name in enumerate(names)}}


@pytest.mark.parametrize(
    ("task_type", "task"), [("SEQ_CLS", Task.CLASSIFY), ("TOKEN_CLS", Task.TOKEN_CLASSIFY), ("seq_cls", Task.CLASSIFY)]
)
def test_a_head_is_packed_with_its_labels(tmp_path: Path, task_type: str, task: Task) -> None:
    upload = classifier(task_type=task_type, config_json=id2label("no", "yes", "maybe"))
    reply = upload.examine(tmp_path)
    acceptance(reply, Finding.KEYS_NORMALISED, Finding.FILES_IGNORED)
    report, head = reply.report, header_of(reply).head
    assert report.mode is Mode.PACKED
    assert "head of its own" in report.mode_reason
    assert head is not None
    assert (head.task, head.labels) == (task, ["no", "yes", "maybe"])
    assert head.tensors == ["classifier.bias", "classifier.weight"]
    assert (report.facts.tasks, report.facts.labels) == ([task], ["no", "yes", "maybe"])
    assert load_file(reply.canonical_path)["head:classifier.weight"].shape == (3, 64)
    assert reply.probe is not None
    assert (reply.probe.task, reply.probe.labels) == (task, ["no", "yes", "maybe"])


def test_the_reference_is_written_for_the_task_class(tmp_path: Path) -> None:
    settings, reference = peft_files(classifier().examine(tmp_path))
    assert settings["modules_to_save"] == ["classifier"]
    assert f"{PREFIX}bert.encoder.layer.0.attention.self.query.lora_A.weight" in reference
    assert f"{PREFIX}classifier.weight" in reference


def test_labels_without_names(tmp_path: Path) -> None:
    reply = classifier(2).examine(tmp_path)
    acceptance(reply, Finding.KEYS_NORMALISED, Finding.LABELS_INFERRED)
    assert reply.report.facts.labels == ["LABEL_0", "LABEL_1"]


def test_labels_in_the_adapters_own_configuration(tmp_path: Path) -> None:
    reply = classifier(2, **id2label("ham", "spam")).examine(tmp_path)
    assert reply.report.facts.labels == ["ham", "spam"]


@pytest.mark.parametrize(
    ("id2label", "words"),
    [
        ({"0": "a", "1": "b", "3": "c"}, ("for output 2", "its ids are 0, 1, 3")),
        ({"1": "a", "2": "b", "3": "c"}, ("for output 0",)),
        ({"0": "a", "1": None, "2": ["c"]}, ("for output 1, 2",)),
        ({"0": "a", "1": "\ud83d", "2": "c\0"}, ("for output 1, 2",)),
    ],
)
def test_labels_with_gaps(tmp_path: Path, id2label: Any, words: tuple[str, ...]) -> None:
    reply = classifier(3, config_json={"id2label": id2label}).examine(tmp_path)
    refusal(reply, Finding.CONFIG_INVALID, "id2label in config.json", *words)


def test_labels_that_are_numbers(tmp_path: Path) -> None:
    reply = classifier(3, config_json={"id2label": {"0": "a", "1": 5, "2": 0}}).examine(tmp_path)
    acceptance(reply, Finding.KEYS_NORMALISED, Finding.FILES_IGNORED)
    assert reply.report.facts.labels == ["a", "5", "0"]


def test_more_labels_than_outputs(tmp_path: Path) -> None:
    reply = classifier(2, config_json=id2label("a", "b", "c")).examine(tmp_path)
    refusal(reply, Finding.CONFIG_INVALID, "names 3 labels", "2 outputs")


@pytest.mark.parametrize(
    ("labels", "config_json", "problem"),
    [
        (3, None, "single_label_classification"),
        (1, None, "regression"),
        (3, {"problem_type": "multi_label_classification"}, "multi_label_classification"),
        (3, {"problem_type": "novel"}, "single_label_classification"),
    ],
)
def test_problem_type(tmp_path: Path, labels: int, config_json: Any, problem: str) -> None:
    head = header_of(classifier(labels, config_json=config_json).examine(tmp_path)).head
    assert head is not None
    assert head.problem == problem


def test_head_missing(tmp_path: Path) -> None:
    reply = adapter(config=configuration(task_type="SEQ_CLS", modules_to_save=["classifier"])).examine(tmp_path)
    refusal(reply, Finding.HEAD_MISSING, "SEQ_CLS", "2 of the head's 2", "classifier.weight", "modules_to_save")


def test_half_a_head(tmp_path: Path) -> None:
    tensors = lora(paths("query", "value")) | {f"{PREFIX}classifier.weight": stored(np.ones((3, 64)))}
    reply = adapter(tensors, configuration(task_type="SEQ_CLS")).examine(tmp_path)
    refusal(reply, Finding.HEAD_MISSING, "1 of the head's 2", "classifier.bias")


@pytest.mark.parametrize(
    ("weight", "bias", "words"), [((3, 128), 3, "3×128"), ((3, 64), 2, "labels"), ((0, 64), 0, "classifier")]
)
def test_a_head_that_does_not_fit(tmp_path: Path, weight: tuple[int, int], bias: int, words: str) -> None:
    tensors = lora(paths("query", "value"))
    tensors |= {
        f"{PREFIX}classifier.weight": stored(np.ones(weight)),
        f"{PREFIX}classifier.bias": stored(np.ones(bias)),
    }
    reply = adapter(tensors, configuration(task_type="SEQ_CLS")).examine(tmp_path)
    code = Finding.SHAPE_MISMATCH if bias else Finding.EMPTY_TENSOR
    refusal(reply, code, words)


def test_a_head_with_a_merged_body(tmp_path: Path) -> None:
    upload = classifier(bias="all")
    tensors = lora(paths("query", "value")) | {
        f"{PREFIX}classifier.weight": stored(np.ones((2, 64))),
        f"{PREFIX}classifier.bias": stored(np.ones(2)),
        f"{PREFIX}embeddings.LayerNorm.bias": stored(np.ones(64)),
    }
    upload = adapter(tensors, configuration(task_type="SEQ_CLS", bias="all"))
    reply = upload.examine(tmp_path)
    acceptance(reply, Finding.LABELS_INFERRED)
    header = header_of(reply)
    assert reply.report.mode is Mode.MERGED
    assert header.head is not None
    assert header.replaced == ["embeddings.LayerNorm.bias"]


def test_no_task_type_but_a_head_is_taken_for_a_text_classifier(tmp_path: Path) -> None:
    reply = classifier(task_type=None).examine(tmp_path)
    acceptance(reply, Finding.KEYS_NORMALISED, Finding.LABELS_INFERRED, Finding.CONFIG_INFERRED)
    assert reply.report.facts.tasks == [Task.CLASSIFY]


def test_no_task_type_but_the_models_class(tmp_path: Path) -> None:
    config_json = {"architectures": ["BertForTokenClassification"], **id2label("O", "B-PER", "I-PER")}
    reply = classifier(task_type=None, config_json=config_json).examine(tmp_path)
    assert not reply.report.failed
    assert reply.report.facts.tasks == [Task.TOKEN_CLASSIFY]


def test_a_head_on_an_embedding_adapter(tmp_path: Path) -> None:
    reply = classifier(task_type="FEATURE_EXTRACTION").examine(tmp_path)
    refusal(reply, Finding.TASK_MISMATCH, "FEATURE_EXTRACTION", "classifier.weight")


@pytest.mark.parametrize("task_type", ["QUESTION_ANS", "SEQ_2_SEQ_LM", "NOVEL"])
def test_tasks_that_nothing_serves(tmp_path: Path, task_type: str) -> None:
    reply = adapter(config=configuration(task_type=task_type)).examine(tmp_path)
    refusal(reply, Finding.TASK_MISMATCH, task_type, "SEQ_CLS")


def test_sent_to_a_base_for_another_task_names_the_one_that_fits(tmp_path: Path) -> None:
    bare = msgspec.structs.replace(encoder_manifest("tiny/bare"), heads=[])
    upload = classifier(base_model_name_or_path="tiny/bare")
    upload.manifests = [bare, encoder_manifest(), decoder_manifest()]
    refusal(upload.examine(tmp_path), Finding.TASK_MISMATCH, "tiny/bare", f"fits {ENCODER}")


def test_a_generating_adapter_for_an_encoder(tmp_path: Path) -> None:
    reply = adapter(config=configuration(task_type="CAUSAL_LM")).examine(tmp_path)
    refusal(reply, Finding.TASK_MISMATCH, "CAUSAL_LM", "embeddings", DECODER)


@pytest.mark.parametrize("task_type", ["CAUSAL_LM", None])
def test_decoder_adapter(tmp_path: Path, task_type: str | None) -> None:
    decoder = decoder_manifest()
    tensors = lora(paths("q_proj", "v_proj", "gate_proj", manifest=decoder), decoder)
    config = configuration(
        base_model_name_or_path=DECODER, target_modules=["q_proj", "v_proj", "mlp.gate_proj"], task_type=task_type
    )
    reply = adapter(tensors, config).examine(tmp_path)
    acceptance(reply)
    assert reply.report.mode is Mode.PACKED
    assert reply.report.facts.tasks == [Task.GENERATE]
    assert reply.probe is not None
    assert reply.probe.task is Task.GENERATE


def test_an_embedding_adapter_for_a_decoder_that_serves_text_alone(tmp_path: Path) -> None:
    decoder = decoder_manifest()
    tensors = lora(paths("q_proj", manifest=decoder), decoder)
    config = configuration(base_model_name_or_path=DECODER, target_modules=["q_proj"], task_type="FEATURE_EXTRACTION")
    refusal(adapter(tensors, config).examine(tmp_path), Finding.TASK_MISMATCH, "generate")


def test_classifier_on_a_decoder(tmp_path: Path) -> None:
    decoder = decoder_manifest()
    tensors = lora(paths("q_proj", manifest=decoder), decoder)
    tensors[f"{PREFIX}score.weight"] = stored(np.ones((4, 64)))
    config = configuration(base_model_name_or_path=DECODER, target_modules=["q_proj"], task_type="SEQ_CLS")
    reply = adapter(tensors, config).examine(tmp_path)
    acceptance(reply, Finding.LABELS_INFERRED)
    settings, reference = peft_files(reply)
    assert settings["target_modules"] == paths("q_proj", manifest=decoder)
    assert f"{PREFIX}score.weight" in reference
