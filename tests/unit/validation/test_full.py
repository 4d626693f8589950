"""Whole models: files, architecture, tensors, numbers and tokenizer, and the bundle that is made of them."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load, save

from tests.unit.validation.models import build, in_process, model_folder, upload_of, with_config
from tests.unit.validation.test_files import POINTER
from tests.unit.validation.uploads import (
    Upload,
    acceptance,
    packed,
    refusal,
    rows_of,
    zipped,
)
from wire.canonical import METADATA_KEY, CanonicalHeader
from wire.codec import decode_json
from wire.jobs import Task
from wire.registry import Mode
from wire.reports import Finding, Outcome
from workers.bundles import unpack_bundle

__all__ = ["in_process"]

pytestmark = pytest.mark.usefixtures("in_process")
WEIGHTS = "model.safetensors"
QUERY = "encoder.layer.0.attention.self.query.weight"


def retensored(upload: Upload, change: Any) -> Upload:
    """The same model with ``change(tensors)`` in its weights."""
    tensors = load(upload.files[WEIGHTS])
    change(tensors)
    upload.files[WEIGHTS] = save(tensors, {"format": "pt"})
    return upload


def test_a_sound_model_becomes_one_bundle(tmp_path: Path, upload: Upload) -> None:
    reply = upload.examine(tmp_path)
    acceptance(reply)
    report = reply.report
    assert (report.kind, report.mode) == ("full", Mode.FULL)
    facts = report.facts
    assert (facts.architecture, facts.tasks[0], facts.dimension) == ("BertModel", Task.EMBEDDINGS, 64)
    assert (facts.max_tokens, facts.vocabulary, facts.base_model, facts.dtype) == (64, 100, "", "F32")
    assert facts.parameters == sum(parameter.numel() for parameter in build("BertModel").parameters())
    path = Path(reply.canonical_path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == report.digest
    with safe_open(path, framework="np") as file:
        header = decode_json(file.metadata()[METADATA_KEY], CanonicalHeader)
    assert (header.kind, header.base_model, header.modules) == ("full", "", {})
    assert reply.probe is not None
    assert (reply.probe.kind, reply.probe.mode, reply.probe.task) == ("full", Mode.FULL, Task.EMBEDDINGS)


def test_workers_open_the_bundle_as_the_folder_it_came_from(tmp_path: Path, bert: Path) -> None:
    reply = upload_of(bert).examine(tmp_path)
    folder = tmp_path / "opened"
    folder.mkdir()
    unpack_bundle(Path(reply.canonical_path), folder, digest=reply.report.digest)
    assert (folder / "tokenizer.json").read_bytes() == (bert / "tokenizer.json").read_bytes()
    opened, source = load((folder / WEIGHTS).read_bytes()), load((bert / WEIGHTS).read_bytes())
    assert {name for name in opened if not name.startswith("file:")} == set(source)
    assert all(np.array_equal(opened[name], source[name]) for name in source)


def test_the_same_model_has_one_digest_however_it_was_packed(tmp_path: Path, upload: Upload) -> None:
    digests = set()
    wrapped = {f"my-model/{name}": data for name, data in upload.files.items()}
    for number, variant in enumerate([upload, Upload(wrapped), packed(upload, zipped(wrapped))]):
        (tmp_path / str(number)).mkdir()
        digests.add(variant.examine(tmp_path / str(number)).report.digest)
    assert len(digests - {""}) == len(digests) == 1


def test_shards_with_an_index_equal_one_file(tmp_path: Path, upload: Upload) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "many").mkdir()
    sharded = upload_of(model_folder(tmp_path / "sharded", shard="100KB"))
    assert "model.safetensors.index.json" in sharded.files
    assert sum(name.endswith(".safetensors") for name in sharded.files) > 1
    reply = sharded.examine(tmp_path / "many")
    acceptance(reply)
    assert reply.report.digest == upload.examine(tmp_path / "one").report.digest


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    (tmp_path / "with").mkdir()
    (tmp_path / "without").mkdir()
    sharded = upload_of(model_folder(tmp_path / "sharded", shard="100KB"))
    name = sorted(name for name in sharded.files if name.endswith(".safetensors"))[1]
    del sharded.files[name]
    refusal(sharded.examine(tmp_path / "with"), Finding.SHARD_MISSING, name)
    del sharded.files["model.safetensors.index.json"]
    refusal(sharded.examine(tmp_path / "without"), Finding.SHARD_MISSING, name)


def test_an_index_that_lists_tensors_which_no_shard_has(tmp_path: Path) -> None:
    sharded = upload_of(model_folder(tmp_path / "sharded", shard="100KB"))
    index = json.loads(sharded.files["model.safetensors.index.json"])
    index["weight_map"]["ghost.weight"] = next(iter(index["weight_map"].values()))
    sharded.files["model.safetensors.index.json"] = json.dumps(index).encode()
    (tmp_path / "x").mkdir()
    refusal(sharded.examine(tmp_path / "x"), Finding.SHARD_MISSING, "ghost.weight")


@pytest.mark.parametrize("content", [b"{}", b"[]", b'{"weight_map": {"a": 3}}', b"\xff"])
def test_an_index_that_is_none(tmp_path: Path, upload: Upload, content: bytes) -> None:
    upload.files["model.safetensors.index.json"] = content
    upload.files["model-00001-of-00001.safetensors"] = upload.files.pop(WEIGHTS)
    refusal(upload.examine(tmp_path), Finding.CONFIG_INVALID, "weight_map")


def test_weights_of_torch_save(tmp_path: Path, bert: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    upload = upload_of(bert)
    expected = upload.examine(tmp_path / "a").report.digest
    out = io.BytesIO()
    torch.save(build("BertModel").state_dict(), out)
    del upload.files[WEIGHTS]
    upload.files["pytorch_model.bin"] = out.getvalue()
    reply = upload.examine(tmp_path / "b")
    acceptance(reply, Finding.PICKLE_CONVERTED)
    assert reply.report.digest == expected
    assert reply.probe is not None
    assert {path.name for path in Path(reply.probe.model_dir).iterdir()} == {"config.json", "tokenizer.json", WEIGHTS}


@pytest.mark.parametrize(
    ("family", "changes", "tasks"),
    [
        ("LlamaForCausalLM", {}, [Task.GENERATE]),
        ("LlamaForCausalLM", {"tie_word_embeddings": False}, [Task.GENERATE]),
        ("GPT2LMHeadModel", {}, [Task.GENERATE]),
        ("T5EncoderModel", {}, [Task.EMBEDDINGS]),
    ],
)
def test_families(tmp_path: Path, family: str, changes: dict[str, Any], tasks: list[Task]) -> None:
    reply = upload_of(model_folder(tmp_path / "m", family, **changes)).examine(tmp_path)
    acceptance(reply)
    assert reply.report.facts.tasks[0] is tasks[0]


@pytest.mark.parametrize(
    ("family", "task"),
    [("BertForSequenceClassification", Task.CLASSIFY), ("RobertaForTokenClassification", Task.TOKEN_CLASSIFY)],
)
def test_classifiers_with_their_labels(tmp_path: Path, family: str, task: Task) -> None:
    named: dict[str, Any] = {"id2label": {0: "bad", 1: "fair", 2: "good"}, "label2id": {"bad": 0, "fair": 1, "good": 2}}
    reply = upload_of(model_folder(tmp_path / "m", family, **named)).examine(tmp_path)
    acceptance(reply)
    assert reply.report.facts.tasks[0] is task
    assert reply.report.facts.labels == ["bad", "fair", "good"]
    assert reply.probe is not None
    assert reply.probe.labels == ["bad", "fair", "good"]


def test_labels_that_nobody_named(tmp_path: Path) -> None:
    reply = upload_of(model_folder(tmp_path / "m", "BertForSequenceClassification", num_labels=3)).examine(tmp_path)
    acceptance(reply, Finding.LABELS_INFERRED)
    assert reply.report.facts.labels == ["LABEL_0", "LABEL_1", "LABEL_2"]


def test_labels_that_are_numbers_or_have_gaps(tmp_path: Path) -> None:
    classifier = upload_of(model_folder(tmp_path / "m", "BertForSequenceClassification", num_labels=3))
    for part in ("numbers", "gap"):
        (tmp_path / part).mkdir()
    reply = with_config(classifier, id2label={"0": 3, "1": 4, "2": 5}).examine(tmp_path / "numbers")
    acceptance(reply)
    assert reply.report.facts.labels == ["3", "4", "5"]
    reply = with_config(classifier, id2label={"0": "a", "1": "b", "5": "c"}).examine(tmp_path / "gap")
    refusal(reply, Finding.CONFIG_INVALID, "no label for output 2", "0, 1, 5")


def test_tensors_that_are_not_served_are_named_and_left_out(tmp_path: Path) -> None:
    reply = upload_of(model_folder(tmp_path / "m", "BertForMaskedLM")).examine(tmp_path)
    acceptance(reply, Finding.TENSORS_UNUSED)
    assert "cls.predictions" in rows_of(reply, Outcome.NOTE)[Finding.TENSORS_UNUSED].found
    assert not any(name.startswith("cls.") for name in load(Path(reply.canonical_path).read_bytes()))


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("modeling_mine.py", b"import os", "modeling_mine.py"),
        ("config.json", {"auto_map": {"AutoModel": "modeling_mine.Mine"}}, "auto_map in config.json"),
        ("config.json", {"trust_remote_code": True}, "trust_remote_code"),
        (
            "tokenizer_config.json",
            b'{"auto_map": {"AutoTokenizer": ["t.T", null]}}',
            "auto_map in tokenizer_config.json",
        ),
    ],
)
def test_code_is_never_run(tmp_path: Path, upload: Upload, file: str, content: Any, words: str) -> None:
    if isinstance(content, dict):
        with_config(upload, **content)
    else:
        upload.files[file] = content
    refusal(upload.examine(tmp_path), Finding.CUSTOM_CODE, words)


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"model_type": "novel"}, Finding.ARCHITECTURE_UNSUPPORTED, "novel"),
        ({"model_type": None}, Finding.CONFIG_INVALID, "model_type"),
        ({"architectures": ["BertForQuestionAnswering"]}, Finding.ARCHITECTURE_UNSUPPORTED, "BertForQuestionAnswering"),
        ({"architectures": [7]}, Finding.CONFIG_INVALID, "architectures"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, Finding.DTYPE_UNSUPPORTED, "bitsandbytes"),
        ({"num_hidden_layers": 10**9}, Finding.CONFIG_INVALID, "num_hidden_layers is 1000000000"),
        ({"vocab_size": -1}, Finding.CONFIG_INVALID, "vocab_size is -1"),
        ({"hidden_size": "64"}, Finding.CONFIG_INVALID, "hidden_size is '64'"),
        ({"hidden_size": 63}, Finding.ARCHITECTURE_UNSUPPORTED, "63"),
        ({"hidden_act": "novel"}, Finding.ARCHITECTURE_UNSUPPORTED, "novel"),
        ({"num_hidden_layers": 3}, Finding.TENSORS_MISSING, "encoder.layer.2"),
        ({"intermediate_size": 256}, Finding.SHAPE_MISMATCH, "128×64, config.json implies 256×64"),
    ],
)
def test_configurations_that_cannot_be(
    tmp_path: Path, upload: Upload, changes: dict[str, Any], code: Finding, words: str
) -> None:
    refusal(with_config(upload, **changes).examine(tmp_path), code, words)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b'{"a":' * 100_000])
def test_unreadable_configuration(tmp_path: Path, upload: Upload, content: bytes) -> None:
    upload.files["config.json"] = content
    refusal(upload.examine(tmp_path), Finding.CONFIG_INVALID, "config.json")


def test_missing_and_other_tensors(tmp_path: Path, upload: Upload) -> None:
    def change(tensors: dict[str, Any]) -> None:
        tensors["extra.weight"] = tensors.pop(QUERY)

    refusal(retensored(upload, change).examine(tmp_path), Finding.TENSORS_MISSING, "1 of 39", QUERY, "extra.weight")


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (lambda array: np.full_like(array, np.nan), Finding.NONFINITE, "4096 NaN"),
        (lambda array: array.astype(np.float64), Finding.DTYPE_UNSUPPORTED, "F64"),
        (lambda array: array.astype(np.int8), Finding.DTYPE_UNSUPPORTED, "I8"),
        (lambda array: array[:, :0], Finding.EMPTY_TENSOR, "1 tensors"),
        (lambda array: array[:32], Finding.SHAPE_MISMATCH, "32×64"),
    ],
)
def test_spoiled_tensors(tmp_path: Path, upload: Upload, change: Any, code: Finding, words: str) -> None:
    def spoil(tensors: dict[str, Any]) -> None:
        tensors[QUERY] = np.ascontiguousarray(change(tensors[QUERY]))

    refusal(retensored(upload, spoil).examine(tmp_path), code, QUERY, words)


def test_half_precision(tmp_path: Path, upload: Upload) -> None:
    def change(tensors: dict[str, Any]) -> None:
        tensors.update({name: array.astype(np.float16) for name, array in tensors.items()})

    reply = retensored(upload, change).examine(tmp_path)
    acceptance(reply)
    assert reply.report.facts.dtype == "F16"


@pytest.mark.parametrize(("name", "code"), [(WEIGHTS, Finding.LFS_POINTER), ("config.json", Finding.LFS_POINTER)])
def test_pointers(tmp_path: Path, upload: Upload, name: str, code: Finding) -> None:
    upload.files[name] = POINTER
    refusal(upload.examine(tmp_path), code, name)


def test_a_cut_weight_file(tmp_path: Path, upload: Upload) -> None:
    upload.files[WEIGHTS] = upload.files[WEIGHTS][:-1]
    refusal(upload.examine(tmp_path), Finding.TRUNCATED)


def test_the_cut_shard_is_named(tmp_path: Path) -> None:
    sharded = upload_of(model_folder(tmp_path / "sharded", shard="100KB"))
    name = sorted(name for name in sharded.files if name.endswith(".safetensors"))[1]
    sharded.files[name] = sharded.files[name][:-7]
    (tmp_path / "x").mkdir()
    refusal(sharded.examine(tmp_path / "x"), Finding.TRUNCATED, f"{name}: ")
