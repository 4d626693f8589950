"""``python -m workers.manifest`` on MiniLM and on tiny random models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.validation.conftest import MINILM, SOURCE, run_manifest
from wire.codec import decode_json
from wire.errors import Code, ErrorInfo, ShoalError
from wire.jobs import Task
from wire.manifest import HeadTensor, Manifest
from workers.manifest import make_manifest
from workers.sources import resolve_source, weights_digest

pytestmark = pytest.mark.timeout(400)


def test_minilm_by_command() -> None:
    done = run_manifest(MINILM, SOURCE)
    assert done.returncode == 0, done.stderr.decode()
    manifest = decode_json(done.stdout, Manifest)
    assert (manifest.family, manifest.architecture) == ("bert", "BertModel")
    assert (manifest.dimension, manifest.max_tokens, manifest.vocabulary) == (384, 256, 30522)
    assert manifest.tasks == [Task.EMBEDDINGS, Task.RERANK]
    assert manifest.digest == weights_digest(resolve_source(SOURCE))
    assert manifest.parameters == 22_713_216
    assert len(manifest.packable) == 37
    assert "pooler.dense" in manifest.packable
    shapes = {module.path: module.weight for module in manifest.modules}
    assert shapes["encoder.layer.5.intermediate.dense"] == [1536, 384]
    assert len(manifest.tokenizer_fingerprint) == 64


def test_tiny_bert(tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=50, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128
    )
    BertModel(config).save_pretrained(tmp_path)
    manifest = make_manifest("tiny/bert", f"path:{tmp_path}")
    assert manifest.tasks == [Task.EMBEDDINGS, Task.RERANK]
    assert (manifest.dimension, manifest.max_tokens, manifest.vocabulary) == (64, 512, 50)
    assert manifest.tokenizer_fingerprint == ""
    assert len(manifest.packable) == 2 * 6 + 1


def test_tiny_llama(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=50, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=128, max_position_embeddings=256,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    manifest = make_manifest("tiny/llama", f"path:{tmp_path}")
    assert (manifest.family, manifest.tasks, manifest.dimension) == ("llama", [Task.GENERATE], None)
    assert manifest.max_tokens == 256
    shapes = {module.path: module.weight for module in manifest.modules}
    assert shapes["model.layers.1.self_attn.k_proj"] == [32, 64]
    assert "lm_head" not in manifest.packable
    assert len(manifest.packable) == 2 * 7
    assert [(head.task, head.prefix) for head in manifest.heads] == [
        (Task.CLASSIFY, "model"),
        (Task.TOKEN_CLASSIFY, "model"),
    ]
    assert manifest.heads[0].tensors == [HeadTensor("score.weight", [-1, 64])]


def test_a_checkpoint_with_a_head_does_what_its_head_does(tmp_path: Path) -> None:
    from transformers import RobertaConfig, RobertaForSequenceClassification

    sizes: dict[str, Any] = {
        "vocab_size": 50, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 128, "max_position_embeddings": 66, "num_labels": 1,
    }  # fmt: skip
    RobertaForSequenceClassification(RobertaConfig(**sizes)).save_pretrained(tmp_path)
    manifest = make_manifest("tiny/cross-encoder", f"path:{tmp_path}")
    assert manifest.tasks == [Task.RERANK, Task.CLASSIFY]
    assert (manifest.dimension, manifest.max_tokens) == (None, 64)
    assert all(not module.path.startswith(("roberta.", "classifier.")) for module in manifest.modules)
    (head,) = manifest.heads
    assert (head.task, head.prefix) == (Task.CLASSIFY, "roberta")
    assert head.tensors == [
        HeadTensor("classifier.dense.weight", [64, 64]),
        HeadTensor("classifier.dense.bias", [64]),
        HeadTensor("classifier.out_proj.weight", [-1, 64]),
        HeadTensor("classifier.out_proj.bias", [-1]),
    ]


def test_two_gguf_files_in_one_folder_are_an_error(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(ShoalError, match="2 GGUF files"):
        make_manifest("two", f"path:{tmp_path}")


def test_a_missing_model_is_one_error_on_stderr(tmp_path: Path) -> None:
    done = run_manifest("no/model", f"path:{tmp_path / 'absent'}")
    assert done.returncode == 2
    assert done.stdout == b""
    assert decode_json(done.stderr.splitlines()[-1], ErrorInfo).code is Code.MODEL_UNLOADABLE
