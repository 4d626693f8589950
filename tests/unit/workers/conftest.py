"""Tiny random BERT on disk for tests of packing, and one torch thread."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from wire.jobs import Task
from wire.registry import ModelRecord

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    *["a", "small", "shoal", "of", "fish", "turns", "as", "one", "before", "the", "storm", "in", "deep", "water"],
]


def write_tiny_bert(folder: Path, *, seed: int = 0, vocabulary: int = len(WORDS)) -> Path:
    """A random two-layer BERT with its tokenizer, as a model directory. A ``vocabulary`` smaller than the tokenizer's
    makes the model fail at the words beyond it.
    """
    from transformers import BertConfig, BertModel

    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=40,
    )
    BertModel(config).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordPiece({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_record(tmp_path_factory: pytest.TempPathFactory) -> ModelRecord:
    """The tiny BERT, registered from a path."""
    folder = write_tiny_bert(tmp_path_factory.mktemp("tiny-bert"))
    return ModelRecord(
        id="test/tiny-bert",
        digest="",
        source=f"path:{folder}",
        tasks=[Task.EMBEDDINGS],
        pool="default",
        max_tokens=40,
        dimension=32,
        created=0,
    )
