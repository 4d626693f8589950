"""Whole models as people upload them: tiny random ones with a tokenizer, saved by transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers import models as token_models
from tokenizers.pre_tokenizers import Whitespace

from loras.validation.full.blueprints import unbuildable
from tests.unit.validation.uploads import Upload
from wire.errors import ShoalError
from wire.manifest import Blueprint
from workers.blueprint import make_blueprint

VOCABULARY = 100
SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
_LLAMA = SIZES | {"num_key_value_heads": 2, "tie_word_embeddings": True}


def build(family: str, **changes: Any) -> Any:
    """A random model of a family, as its class's name says."""
    torch.manual_seed(7)
    kinds: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "BertModel": (transformers.BertModel, transformers.BertConfig, SIZES),
        "BertForMaskedLM": (transformers.BertForMaskedLM, transformers.BertConfig, SIZES),
        "BertForSequenceClassification": (
            transformers.BertForSequenceClassification, transformers.BertConfig, SIZES,
        ),
        "BertForQuestionAnswering": (transformers.BertForQuestionAnswering, transformers.BertConfig, SIZES),
        "RobertaForTokenClassification": (
            transformers.RobertaForTokenClassification, transformers.RobertaConfig, SIZES,
        ),
        "LlamaForCausalLM": (transformers.LlamaForCausalLM, transformers.LlamaConfig, _LLAMA),
        "GPT2LMHeadModel": (
            transformers.GPT2LMHeadModel,
            transformers.GPT2Config,
            {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": VOCABULARY},
        ),
        "T5EncoderModel": (
            transformers.T5EncoderModel,
            transformers.T5Config,
            {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": VOCABULARY},
        ),
    }  # fmt: skip
    kind, config, sizes = kinds[family]
    return kind(config(**(sizes | changes)))


def save_tokenizer(folder: Path, tokens: int = VOCABULARY) -> None:
    """A word-level tokenizer of ``tokens`` words."""
    vocabulary = {"[UNK]": 0, **{f"w{number}": number for number in range(1, tokens)}}
    tokenizer = Tokenizer(token_models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))


def model_folder(folder: Path, family: str = "BertModel", *, shard: str | None = None, **changes: Any) -> Path:
    """A folder as ``save_pretrained`` writes it; ``shard`` is the largest size of a weight file."""
    folder.mkdir(parents=True, exist_ok=True)
    options = {"max_shard_size": shard} if shard else {}
    build(family, **changes).save_pretrained(str(folder), **options)
    save_tokenizer(folder)
    return folder


def upload_of(folder: Path) -> Upload:
    """Every file of a folder."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return Upload({path.relative_to(folder).as_posix(): path.read_bytes() for path in found})


def with_config(upload: Upload, **changes: Any) -> Upload:
    """The same model with other settings in its config.json."""
    config = json.loads(upload.files["config.json"]) | changes
    upload.files["config.json"] = json.dumps(config).encode()
    return upload


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blueprints are made in this process: a child would load torch for each test."""

    def ask(folder: Path) -> Blueprint:
        try:
            return make_blueprint(folder)
        except ShoalError as error:
            raise unbuildable(str(error)) from error

    monkeypatch.setattr("loras.validation.full.checks.ask_blueprint", ask)
