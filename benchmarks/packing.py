"""Twelve models in room for four: hit rate, reloads and latency of the engine, of plain LRU, of one model per worker.

Run ``python -m benchmarks.packing --json FILE``. The same Zipf mix of one-text requests (a closed loop) goes to real
worker processes: one with the engine's policy, one with the same engine as plain LRU (a half-life of a
millisecond leaves nothing but the last use), and four workers with room for one model each, among which the models
are dealt out. All have the same bytes for models together.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.tiny_models import write_encoder
from benchmarks.worker_end import WorkerEnd, embedding_job, end_workers_on_sigterm, percentile
from wire.jobs import Task
from wire.registry import ModelRecord

MODELS = 12
ROOM = 4
TEXT = "the quick river shoal of small fish turned as one before a storm"
_BATCH_TOKENS = "512"
_LRU_HALF_LIFE_S = "0.001"


@dataclass(frozen=True)
class Row:
    """One way of packing. ``reloads`` are loads beyond each model's first; ``memory_bytes`` is the resident set of all
    its processes at the end."""

    policy: str
    requests: int
    hit_rate: float
    loads: int
    reloads: int
    evictions: int
    p50_ms: float
    p99_ms: float
    memory_bytes: int


def make_records(folder: Path) -> list[ModelRecord]:
    """The models, written below ``folder``."""
    records = []
    for number in range(MODELS):
        path = write_encoder(folder / f"model{number}", seed=number)
        records.append(
            ModelRecord(f"bench/model{number}", "", f"path:{path}", [Task.EMBEDDINGS], "default", 128, 256, 0, False)
        )
    return records


def zipf_mix(count: int, *, seed: int = 11) -> list[int]:
    """Model numbers of ``count`` requests, the n-th model in proportion to 1/n."""
    chance = random.Random(seed)
    return chance.choices(range(MODELS), [1 / (rank + 1) for rank in range(MODELS)], k=count)


def measure_budget(record: ModelRecord) -> tuple[int, int]:
    """(bytes of one model, headroom beside it), as a worker measures them."""
    with WorkerEnd(batch_tokens=_BATCH_TOKENS) as worker:
        worker.start([record])
        worker.ask(embedding_job(record.id, TEXT))
        sample = worker.settle()
    size_bytes = sample.models[0].size_bytes
    return size_bytes, (sample.reserved_bytes or size_bytes) - size_bytes


def run(policy: str, records: Sequence[ModelRecord], mix: Sequence[int], budgets: Sequence[int], clients: int,
        **settings: str) -> Row:  # fmt: skip
    """Send ``mix`` from ``clients`` threads to one worker for each of ``budgets``."""
    times: list[float] = []
    with contextlib.ExitStack() as stack:
        workers = [
            stack.enter_context(
                WorkerEnd(worker_id=f"cpu{n}", model_bytes=str(size), batch_tokens=_BATCH_TOKENS, **settings)
            )
            for n, size in enumerate(budgets)
        ]
        for worker in workers:
            worker.start(records)
        turn = iter(mix)
        lock = threading.Lock()
        failures: list[BaseException] = []

        def client() -> None:
            try:
                while True:
                    with lock:
                        number = next(turn, None)
                    if number is None:
                        return
                    seconds = workers[number % len(workers)].ask(embedding_job(records[number].id, TEXT))
                    with lock:
                        times.append(seconds)
            except RuntimeError as error:
                failures.append(error)

        threads = [threading.Thread(target=client) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        last = [worker.settle() for worker in workers]
        samples = [sample for worker in workers for sample in worker.samples]
    loads = sum(sample.loads for sample in samples)
    return Row(
        policy=policy,
        requests=len(times),
        hit_rate=round(1 - loads / len(times), 4),
        loads=loads,
        reloads=loads - len(set(mix)),
        evictions=sum(sample.evictions for sample in samples),
        p50_ms=round(percentile(times, 0.5) * 1e3, 2),
        p99_ms=round(percentile(times, 0.99) * 1e3, 2),
        memory_bytes=sum(sample.process_bytes or 0 for sample in last),
    )


def table(rows: Sequence[Row]) -> str:
    """The rows for a person."""
    head = "policy                requests  hit rate  loads  reloads  evictions    p50 ms    p99 ms  memory MiB"
    lines = [
        f"{row.policy:20s}  {row.requests:8d}  {row.hit_rate:8.3f}  {row.loads:5d}  {row.reloads:7d}  "
        f"{row.evictions:9d}  {row.p50_ms:8.1f}  {row.p99_ms:8.1f}  {row.memory_bytes / 2**20:10.0f}"
        for row in rows
    ]
    return "\n".join([head, *lines])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packing", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--clients", type=int, default=2)
    options = parser.parse_args(arguments)
    end_workers_on_sigterm()
    os.environ.setdefault("SHOAL_DTYPE", "float32")
    mix = zipf_mix(options.requests)
    with tempfile.TemporaryDirectory() as folder:
        records = make_records(Path(folder))
        size, headroom = measure_budget(records[0])
        # half a model more than four: the measured working memory of a batch differs a little from load to load
        whole = ROOM * size + size // 2 + headroom
        single = size + size // 2 + headroom
        rows = [
            run("engine", records, mix, [whole], options.clients),
            run("plain LRU", records, mix, [whole], options.clients, residency_half_life_s=_LRU_HALF_LIFE_S),
            run("one model per worker", records, mix, [single] * ROOM, options.clients),
        ]
    print(f"{MODELS} models of {size / 2**20:.0f} MiB in room for {ROOM}, {options.clients} clients")
    print(table(rows))
    if options.json is not None:
        found = {"models": MODELS, "room": ROOM, "model_bytes": size, "headroom_bytes": headroom}
        options.json.write_text(json.dumps(found | {"rows": [asdict(row) for row in rows]}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
