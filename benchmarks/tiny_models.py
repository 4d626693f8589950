"""Small random encoders on disk, for benchmarks of the engine rather than of a model."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_VOCABULARY = 8000


def write_encoder(folder: Path, *, seed: int, hidden: int = 256, layers: int = 4) -> Path:
    """A random BERT of about 20 MB with a tokenizer that spells, as a model directory."""
    from transformers import BertConfig, BertModel
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=_VOCABULARY,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=4 * hidden,
        max_position_embeddings=128,
    )
    BertModel(config).save_pretrained(folder)
    words = [*_SPECIAL, *_LETTERS, *(f"##{letter}" for letter in _LETTERS)]
    tokenizer = Tokenizer(models.WordPiece({word: number for number, word in enumerate(words)}, unk_token=_SPECIAL[1]))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder
