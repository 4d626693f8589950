"""More adapters in use than slots: latency at 0.5, 1, 2 and 4 times the slots.

Run ``python -m benchmarks.working_set --json FILE``. A real worker process with MiniLM and few slots answers a closed
loop of one-text requests (8 to 20 words), each with an adapter (rank 16, all linear modules) drawn at random from the
set in use. Each adapter was used once before, so what is measured is moving between host memory and slots.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import save

from benchmarks.multi_lora import PROSE, SOURCE
from benchmarks.worker_end import WorkerEnd, embedding_job, end_workers_on_sigterm, percentile
from wire.canonical import FORMAT, METADATA_KEY, SUFFIX_A, SUFFIX_B, CanonicalHeader, ModuleHeader
from wire.codec import encode_json
from wire.jobs import Task
from wire.registry import ModelRecord

MODEL = "benchmark"
RATIOS = (0.5, 1.0, 2.0, 4.0)
_LAYERS, _HIDDEN, _INNER = 6, 384, 1536


@dataclass(frozen=True)
class Row:
    """``ratio`` is adapters in use over slots; ``loads`` are copies into slots during the measurement."""

    ratio: float
    adapters: int
    requests: int
    rps: float
    p50_ms: float
    p99_ms: float
    loads: int


def module_shapes() -> dict[str, tuple[int, int]]:
    """(out_features, in_features) of MiniLM's linear modules."""
    shapes = {}
    for layer in range(_LAYERS):
        stem = f"encoder.layer.{layer}"
        for name in ("query", "key", "value"):
            shapes[f"{stem}.attention.self.{name}"] = (_HIDDEN, _HIDDEN)
        shapes[f"{stem}.attention.output.dense"] = (_HIDDEN, _HIDDEN)
        shapes[f"{stem}.intermediate.dense"] = (_INNER, _HIDDEN)
        shapes[f"{stem}.output.dense"] = (_HIDDEN, _INNER)
    return shapes


def write_adapters(folder: Path, count: int, *, rank: int) -> dict[str, Path]:
    """Canonical files of ``count`` random adapters by digest."""
    files = {}
    for number in range(count):
        generator = torch.Generator().manual_seed(number)
        tensors = {}
        for path, (outside, inside) in module_shapes().items():
            tensors[path + SUFFIX_A] = torch.randn((rank, inside), generator=generator) / inside**0.5
            tensors[path + SUFFIX_B] = torch.randn((outside, rank), generator=generator) * 0.01
        header = CanonicalHeader(FORMAT, MODEL, "", {path: ModuleHeader(rank, 1.0) for path in module_shapes()})
        data = save(tensors, metadata={METADATA_KEY: encode_json(header).decode()})
        digest = hashlib.sha256(data).hexdigest()
        files[digest] = folder / digest
        files[digest].write_bytes(data)
    return files


def measure(worker: WorkerEnd, ratio: float, files: Mapping[str, Path], requests: int, clients: int) -> Row:
    """One ratio: each adapter once, then ``requests`` at random from ``clients`` threads."""
    for digest, path in files.items():
        worker.ask(embedding_job(MODEL, "start", adapter=digest), path)
    worker.settle()
    seen = len(worker.samples)
    chance = random.Random(int(ratio * 10))
    words = PROSE.split()
    work = [
        (" ".join(chance.choices(words, k=chance.randint(8, 20))), chance.choice(list(files))) for _ in range(requests)
    ]
    times: list[float] = []
    failures: list[BaseException] = []
    lock = threading.Lock()

    def client(mine: list[tuple[str, str]]) -> None:
        try:
            for text, digest in mine:
                seconds = worker.ask(embedding_job(MODEL, text, adapter=digest), files[digest])
                with lock:
                    times.append(seconds)
        except RuntimeError as error:
            failures.append(error)

    parts = [work[number::clients] for number in range(clients)]
    threads = [threading.Thread(target=client, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    worker.settle()
    return Row(
        ratio=ratio,
        adapters=len(files),
        requests=len(times),
        rps=round(clients * len(times) / sum(times), 1),
        p50_ms=round(percentile(times, 0.5) * 1e3, 2),
        p99_ms=round(percentile(times, 0.99) * 1e3, 2),
        loads=sum(sample.loads for sample in worker.samples[seen:]),
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.working_set", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--requests", type=int, default=600, help="for each ratio")
    parser.add_argument("--clients", type=int, default=16)
    options = parser.parse_args(arguments)
    end_workers_on_sigterm()
    os.environ.setdefault("SHOAL_DTYPE", "float32")
    record = ModelRecord(MODEL, "", SOURCE, [Task.EMBEDDINGS], "default", 256, 384, 0)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        files = write_adapters(Path(folder), int(max(RATIOS) * options.slots), rank=options.rank)
        for ratio in RATIOS:
            some = dict(list(files.items())[: max(1, int(ratio * options.slots))])
            with WorkerEnd(slots=str(options.slots)) as worker:
                worker.start([record])
                rows.append(measure(worker, ratio, some, options.requests, options.clients))
    print(f"{options.slots} slots, rank {options.rank}, all linear modules, {options.clients} clients")
    print("ratio  adapters  requests     rps    p50 ms    p99 ms  loads")
    for row in rows:
        print(
            f"{row.ratio:5.1f}  {row.adapters:8d}  {row.requests:8d}  {row.rps:6.1f}  {row.p50_ms:8.1f}  "
            f"{row.p99_ms:8.1f}  {row.loads:5d}"
        )
    if options.json is not None:
        options.json.write_text(json.dumps({"slots": options.slots, "rows": [asdict(row) for row in rows]}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
