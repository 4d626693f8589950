"""``python -m workers.manifest`` on MiniLM and on tiny random models."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.validation.conftest import MINILM, SOURCE, run_manifest
from wire.codec import decode_json
from wire.errors import Code, ErrorInfo
from wire.jobs import Task
from wire.manifest import Manifest
from workers.manifest import make_manifest
from workers.sources import resolve_source, weights_digest

pytestmark = pytest.mark.timeout(400)


def test_minilm_by_command() -> None:
    done = run_manifest(MINILM, SOURCE)
    assert done.returncode == 0, done.stderr.decode()
    manifest = decode_json(done.stdout, Manifest)
    assert (manifest.family, manifest.architecture) == ("bert", "BertModel")
    assert (manifest.dimension, manifest.max_tokens, manifest.vocabulary) == (384, 256, 30522)
    assert manifest.tasks == [Task.EMBEDDINGS]
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
    assert manifest.tasks == [Task.EMBEDDINGS]
    assert (manifest.dimension, manifest.max_tokens, manifest.vocabulary) == (64, 512, 50)
    assert manifest.tokenizer_fingerprint == ""
    assert len(manifest.packable) == 2 * 6 + 1


def test_tiny_llama_has_shapes_and_no_task_yet(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=50, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=128, max_position_embeddings=256,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    manifest = make_manifest("tiny/llama", f"path:{tmp_path}")
    assert (manifest.family, manifest.tasks, manifest.dimension) == ("llama", [], None)
    assert manifest.max_tokens == 256
    shapes = {module.path: module.weight for module in manifest.modules}
    assert shapes["model.layers.1.self_attn.k_proj"] == [32, 64]
    assert "lm_head" not in manifest.packable
    assert len(manifest.packable) == 2 * 7


def test_a_missing_model_is_one_error_on_stderr(tmp_path: Path) -> None:
    done = run_manifest("no/model", f"path:{tmp_path / 'absent'}")
    assert done.returncode == 2
    assert done.stdout == b""
    assert decode_json(done.stderr.splitlines()[-1], ErrorInfo).code is Code.MODEL_UNLOADABLE
