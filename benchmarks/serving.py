"""Served rate against the in-process rate: one-text requests through gateway, queue, sidecar and worker.

``python -m benchmarks.serving [--seconds 4] [--concurrency 1,8,64,256] [--adapters 32] --json FILE`` measures the same
texts (8 to 20 words) in process at the best batch size and dtype, before and after the served rows, in the same run.
Each row has the processor time that a request costs in each process (``cpu_ms``; ``client`` is the load itself), and
``cpu_ratio``: processor time a text in process over that of all processes, which is the ratio of the rates where no
core idles. It says something also on a machine that others use meanwhile, where rates and latencies do not.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.http_load import post, run_load
from benchmarks.serving_stack import MODEL, SECRET, ServingStack, adapter_name, running_stack

PROSE = """
the quick river shoal of small fish turned as one before a storm while engineers measured how long every
request waits in a shared queue and why pressure on the valve rises when pumps start after maintenance of
turbines under load with sensors reporting temperature voltage and flow each second to operators on shift
"""
TEXTS = 2_000


def sentences() -> list[str]:
    """Texts of 8 to 20 words, the same in every run."""
    chance = random.Random(11)
    return [" ".join(chance.choices(PROSE.split(), k=chance.randint(8, 20))) for _ in range(TEXTS)]


def in_process(texts: Path, seconds: float, *arguments: str) -> dict[str, Any]:
    """What ``benchmarks.in_process`` finds with the better of two ways of OpenMP's threads to wait for each other."""
    command = [sys.executable, "-m", "benchmarks.in_process", "--texts", str(texts), "--seconds", str(seconds / 2)]
    found: list[dict[str, Any]] = []
    for spins in ("", "2000"):  # the library's own, and the worker's
        environment = os.environ | ({"GOMP_SPINCOUNT": spins} if spins else {})
        done = subprocess.run([*command, *arguments], stdout=subprocess.PIPE, check=True, env=environment)
        found.append(json.loads(done.stdout.splitlines()[-1]) | {"spins": spins or "default"})
    return max(found, key=lambda each: float(each["in_process_rps"]))


def requests_for(texts: list[str], adapters: int) -> Iterator[bytes]:
    """Requests for ever: base model, or one of ``adapters`` adapters at random."""
    chance = random.Random(5)
    names = [adapter_name(number) for number in range(adapters)] or [MODEL]
    # Made before the run: the client's own cost stays small.
    made = [post("/v1/embeddings", {"model": chance.choice(names), "input": text}, SECRET) for text in texts]
    return itertools.cycle(made)


def row(stack: ServingStack, texts: list[str], *, adapters: int, clients: int, seconds: float) -> dict[str, Any]:
    """One run of ``clients`` concurrent one-text requests."""
    requests = requests_for(texts, adapters)
    run_load(stack.port, requests, clients=clients, seconds=min(1.0, seconds))
    before = stack.cpu_s()
    outcome = run_load(stack.port, requests, clients=clients, seconds=seconds)
    after = stack.cpu_s()
    count = max(1, len(outcome.latencies))
    cpu_ms = {name: round(1000 * (after[name] - before[name]) / count, 3) for name in after}
    found = {
        "adapters": adapters,
        "concurrency": clients,
        "rps": round(outcome.per_second, 1),
        "p50_ms": round(outcome.percentile_ms(0.5), 2),
        "p99_ms": round(outcome.percentile_ms(0.99), 2),
        "failed": sum(outcome.failures.values()),
        "cpu_ms": cpu_ms | {"client": round(1000 * outcome.cpu_s / count, 3)},
    }
    print(json.dumps(found), flush=True)
    for line, times in outcome.failures.items():
        print(f"  {times} times: {line}", flush=True)
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The whole run."""
    texts = sentences()
    clients = [int(part) for part in options.concurrency.split(",")]
    with tempfile.TemporaryDirectory(prefix="shoal-serving-") as folder:
        home = Path(folder)
        listed = home / "texts.json"
        listed.write_text(json.dumps(texts))
        count = str(options.adapters)
        facts = in_process(listed, options.seconds * 4, "--adapters", count, "--cache", str(home / "cache"))
        print(json.dumps({name: facts[name] for name in facts if name not in ("adapters", "digest")}), flush=True)
        environment = {"SHOAL_DTYPE": options.dtype}
        adapters = facts.get("adapters", [])
        with running_stack(home, digest=facts["digest"], adapters=adapters, environment=environment) as stack:
            rows = [
                row(stack, texts, adapters=adapters, clients=number, seconds=options.seconds)
                for adapters in ([0, options.adapters] if options.adapters else [0])
                for number in clients
            ]
        again = in_process(listed, options.seconds * 2, "--dtypes", str(facts["best"]).partition("/")[0])
    rps = (facts["in_process_rps"] + again["in_process_rps"]) / 2
    for each in rows:
        each["ratio"] = round(each["rps"] / rps, 3)
        each["cpu_ratio"] = round(facts["cpu_ms"] / sum(each["cpu_ms"].values()), 3)
    return {
        "in_process_rps": round(rps, 1),
        "direct_p50_ms": round((facts["direct_p50_ms"] + again["direct_p50_ms"]) / 2, 2),
        "in_process": [facts["rates"], again["rates"]],
        "best": facts["best"],
        "spins": facts["spins"],
        "in_process_cpu_ms": facts["cpu_ms"],
        "dtype": options.dtype,
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--concurrency", default="1,8,64,256")
    parser.add_argument("--adapters", type=int, default=32)
    parser.add_argument("--dtype", default="auto", help="SHOAL_DTYPE of the worker")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    outcome = measure(options)
    print(json.dumps({name: outcome[name] for name in ("in_process_rps", "direct_p50_ms", "best", "dtype")}))
    for each in outcome["rows"]:
        load = f"{each['adapters']:>3} adapters {each['concurrency']:>4} clients"
        print(f"{load} {each['rps']:>8} rps  ratio {each['ratio']:.2f}  by processor time {each['cpu_ratio']:.2f}")
    if options.json:
        options.json.write_text(json.dumps(outcome, indent=1))


if __name__ == "__main__":
    main()
