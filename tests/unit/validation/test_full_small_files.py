"""Whole models: tokenizer, pooling and the other small files beside the weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load

from loras.validation.runner import told
from tests.unit.validation.models import in_process, save_tokenizer
from tests.unit.validation.test_files import POINTER
from tests.unit.validation.uploads import (
    Upload,
    acceptance,
    refusal,
    rows_of,
    safetensors_bytes,
    stored,
)
from wire.reports import Finding, Outcome, Row

__all__ = ["in_process"]

pytestmark = pytest.mark.usefixtures("in_process")
WEIGHTS = "model.safetensors"
QUERY = "encoder.layer.0.attention.self.query.weight"


def test_a_pointer_to_the_tokenizer(tmp_path: Path, upload: Upload) -> None:
    del upload.files["tokenizer.json"]
    upload.files["tokenizer.model"] = POINTER
    refusal(upload.examine(tmp_path), Finding.LFS_POINTER, "tokenizer.model")


def test_no_tokenizer(tmp_path: Path, upload: Upload) -> None:
    del upload.files["tokenizer.json"]
    refusal(upload.examine(tmp_path), Finding.TOKENIZER_MISSING, "tokenizer.save_pretrained")


@pytest.mark.parametrize("content", [b"", b"{}", b'{"model": {"vocab": {}}}', b'{"model": {"vocab": {"a": "b"}}}'])
def test_a_tokenizer_that_is_none(tmp_path: Path, upload: Upload, content: bytes) -> None:
    upload.files["tokenizer.json"] = content
    refusal(upload.examine(tmp_path), Finding.TOKENIZER_INVALID, "tokenizer.json")


def test_a_tokenizer_that_is_larger_than_the_model(tmp_path: Path, upload: Upload) -> None:
    save_tokenizer(tmp_path, 103)
    upload.files["tokenizer.json"] = (tmp_path / "tokenizer.json").read_bytes()
    (tmp_path / "x").mkdir()
    refusal(upload.examine(tmp_path / "x"), Finding.TOKENIZER_INVALID, "ids up to 102", "100 tokens")


def test_added_tokens_beyond_the_model_are_named(tmp_path: Path, upload: Upload) -> None:
    tokenizer = json.loads(upload.files["tokenizer.json"])
    tokenizer["added_tokens"] = [{"id": 100, "content": "<tool>"}]
    upload.files["tokenizer.json"] = json.dumps(tokenizer).encode()
    refusal(upload.examine(tmp_path), Finding.TOKENIZER_INVALID, "'<tool>' is token 100")


def sentence_transformer(upload: Upload, *kinds: str) -> Upload:
    modules = [
        {
            "idx": number,
            "name": str(number),
            "path": f"{number}_{kind}" if number else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for number, kind in enumerate(kinds)
    ]
    upload.files["modules.json"] = json.dumps(modules).encode()
    pooling = {"word_embedding_dimension": 64, "pooling_mode_mean_tokens": True}
    upload.files["1_Pooling/config.json"] = json.dumps(pooling).encode()
    return upload


def test_a_sentence_transformers_folder_keeps_its_pooling(tmp_path: Path, upload: Upload) -> None:
    reply = sentence_transformer(upload, "Transformer", "Pooling", "Normalize").examine(tmp_path)
    acceptance(reply)
    assert "file:1_Pooling/config.json" in load(Path(reply.canonical_path).read_bytes())


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("tokenizer_config.json", b"[1]", "tokenizer_config.json (3 bytes) is no JSON object"),
        ("sentence_bert_config.json", b"", "sentence_bert_config.json (0 bytes)"),
        ("1_Pooling/config.json", b"{", "1_Pooling/config.json (1 bytes)"),
        (
            "config_sentence_transformers.json",
            b'{"prompts": ["query: "]}',
            "prompts in config_sentence_transformers.json",
        ),
        ("modules.json", b'{"0": {}}', "modules.json lists no stages"),
    ],
)
def test_small_files_that_cannot_be_read_are_named(
    tmp_path: Path, upload: Upload, name: str, content: bytes, words: str
) -> None:
    upload = sentence_transformer(upload, "Transformer", "Pooling")
    upload.files[name] = content
    refusal(upload.examine(tmp_path), Finding.CONFIG_INVALID, words)


def test_empty_settings_are_fine(tmp_path: Path, upload: Upload) -> None:
    upload.files |= {"tokenizer_config.json": b"{ }\n", "sentence_bert_config.json": b"{}"}
    acceptance(upload.examine(tmp_path))


def test_a_failed_probe_tells_no_folder_of_this_machine() -> None:
    found = "The worker cannot load it: the tokenizer in /tmp/a-b/shoal-model-7 cannot be read: and/or 1/2"
    row = Row(check="x", outcome=Outcome.FAIL, code=Finding.PROBE_FAILED, found=found, todo="Load it with PEFT.")
    assert told(row, "lora").found == found.replace("/tmp/a-b/", "")
    assert told(row, "lora").todo == row.todo
    assert "transformers" in told(row, "full").todo


@pytest.mark.parametrize("path", ["1_Pooling", "../../../etc", "/etc", ""])
def test_pooling_whose_file_did_not_come_along(tmp_path: Path, upload: Upload, path: str) -> None:
    upload = sentence_transformer(upload, "Transformer", "Pooling")
    del upload.files["1_Pooling/config.json"]
    upload.files["modules.json"] = upload.files["modules.json"].replace(b"1_Pooling", path.encode())
    refusal(upload.examine(tmp_path), Finding.FILE_MISSING, f"{path}/config.json", "files (1) are not in the upload")


def test_a_stage_that_is_not_served(tmp_path: Path, upload: Upload) -> None:
    upload = sentence_transformer(upload, "Transformer", "Pooling", "Dense")
    upload.files["2_Dense/config.json"] = b"{}"
    upload.files["2_Dense/model.safetensors"] = safetensors_bytes({"linear.weight": stored(np.ones((4, 4)))})
    refusal(upload.examine(tmp_path), Finding.ARCHITECTURE_UNSUPPORTED, "Dense", "2_Dense")


def test_companions_are_listed(tmp_path: Path, upload: Upload) -> None:
    upload.files |= {"README.md": b"hello", "optimizer.pt": b"x", "runs/events": b"x"}
    reply = upload.examine(tmp_path)
    acceptance(reply, Finding.FILES_IGNORED)
    assert "optimizer.pt" in rows_of(reply, Outcome.NOTE)[Finding.FILES_IGNORED].found
