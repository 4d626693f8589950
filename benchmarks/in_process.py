"""The same texts without any server: the worker package's own model in one process, at its best batch size and dtype.

``python -m benchmarks.in_process --seconds 6 --texts FILE [--adapters N --cache DIR]`` prints JSON. With ``--adapters``
it also writes N random adapters into a sidecar's cache and tells their digests.
"""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.serving_stack import MODEL, SOURCE
from tests.artifacts import minilm_shapes, random_adapter, targets
from wire.jobs import EmbeddingInputs, Task
from wire.registry import ModelRecord
from workers.models import LoadedModel, ModelOptions, load_model
from workers.sources import resolve_source, weights_digest

BATCHES = (16, 32, 64, 128)
DTYPES = ("float32", "bfloat16")
RANK = 8


def record(digest: str) -> ModelRecord:
    """MiniLM as a base model."""
    return ModelRecord(
        id=MODEL, digest=digest, source=SOURCE, tasks=[Task.EMBEDDINGS], pool="default", max_tokens=256,
        dimension=384, created=0,
    )  # fmt: skip


def write_adapters(count: int, cache: Path, digest: str) -> list[str]:
    """Random adapters on query and value as a sidecar's cache holds them; their digests."""
    cache.mkdir(parents=True, exist_ok=True)
    shapes = minilm_shapes()
    digests = []
    for number in range(count):
        ranks = dict.fromkeys(targets(shapes, "query", "value"), RANK)
        adapter = random_adapter(shapes, ranks, seed=number, base_digest=digest)
        (cache / adapter.digest).write_bytes(adapter.file_bytes)
        digests.append(adapter.digest)
    return digests


def embed(model: LoadedModel, texts: list[str]) -> None:
    """All that the worker does for ``texts``: tokens, forward pass, outputs."""
    prepared = model.prepare(Task.EMBEDDINGS, EmbeddingInputs(texts=texts))
    outputs = model.forward(prepared.rows, [None] * len(prepared.rows))
    model.kind.finish(Task.EMBEDDINGS, outputs, prepared, None)


def rate(model: LoadedModel, texts: list[str], batch: int, seconds: float) -> tuple[float, float]:
    """Texts per second in batches of ``batch``, and milliseconds of processor a text."""
    done, at, began, cpu = 0, 0, time.perf_counter(), time.process_time()
    while (spent := time.perf_counter() - began) < seconds:
        chunk = texts[at : at + batch]
        at = at + batch if at + 2 * batch <= len(texts) else 0
        embed(model, chunk)
        done += len(chunk)
    return round(done / spent, 1), round(1000 * (time.process_time() - cpu) / done, 3)


def single_ms(model: LoadedModel, texts: list[str], seconds: float) -> float:
    """Median time of one text alone."""
    spent: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        embed(model, [texts[len(spent) % len(texts)]])
        spent.append(1000 * (time.perf_counter() - began))
    return statistics.median(spent)


def measure(texts: list[str], seconds: float, digest: str, dtypes: list[str]) -> dict[str, Any]:
    """Rates of every dtype and batch size, in ``seconds`` altogether, and the best of them."""
    share = seconds / len(dtypes) / (len(BATCHES) + 1)
    rates: dict[str, float] = {}
    cpu_ms: dict[str, float] = {}
    singles: dict[str, float] = {}
    for dtype in dtypes:
        model = load_model(record(digest), options=ModelOptions(dtype=dtype))
        embed(model, texts[:32])
        for batch in BATCHES:
            name = f"{dtype}/{batch}"
            rates[name], cpu_ms[name] = rate(model, texts, batch, share)
        singles[dtype] = round(single_ms(model, texts, share), 2)
    best = max(rates, key=rates.__getitem__)
    return {
        "in_process_rps": rates[best],
        "direct_p50_ms": min(singles.values()),
        "best": best,
        "cpu_ms": cpu_ms[best],
        "rates": rates,
        "single_ms": singles,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--adapters", type=int, default=0)
    parser.add_argument("--cache", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    digest = weights_digest(resolve_source(SOURCE))
    found: dict[str, Any] = {"digest": digest}
    if options.adapters and options.cache:
        found["adapters"] = write_adapters(options.adapters, options.cache, digest)
    texts = json.loads(options.texts.read_text())
    print(json.dumps(found | measure(texts, options.seconds, digest, options.dtypes.split(","))))


if __name__ == "__main__":
    main()
