"""The main job with no hands: train a LoRA, ship it, ask it, watch it. ``make demo`` runs this.

Ends with one JSON line of figures, all measured in this run, and exit status 0; any failure says what failed and
exits with 1.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from openai import OpenAI, OpenAIError
from rich.console import Console

from client import Shoal
from client.config import Connection
from client.errors import ClientError
from examples.live_samples import NoSamplesError, Watching
from examples.maintenance_shorthand.pairs import read_pairs
from examples.retrieval import embed, recall_at
from examples.temporary_stack import Addresses, StackError, temporary_stack
from examples.train_lora import BASE_MODEL, train

WARM_REQUESTS = 40

out = Console(highlight=False, width=None if sys.stdout.isatty() else 160)


class DemoError(RuntimeError):
    """A step of the demo did not do what it should."""


def say(text: str) -> None:
    """One step, in bold."""
    out.print(f"\n[bold]{text}[/bold]")


def main() -> None:
    logging.disable(logging.WARNING)
    try:
        with tempfile.TemporaryDirectory(prefix="shoal-adapter-") as folder:
            run(Path(folder) / "maintenance-shorthand")
    except (DemoError, StackError, ClientError, OpenAIError, NoSamplesError, OSError) as error:
        print(f"demo failed: {error}", file=sys.stderr)
        sys.exit(1)


def run(adapter: Path) -> None:
    """All steps; prints the JSON line."""
    say("1. Start the whole stack in a temporary home")
    with temporary_stack() as stack:
        out.print(f"web {stack.web}   gateway {stack.gateway}")
        say("2. Train a LoRA on a plant's shorthand, which the base model does not know")
        seconds = train(adapter)
        out.print(f"trained in {seconds:.0f} s, rank 16 on query and value: {_size(adapter):.0f} kB")
        name = f"{_team(stack)}/{adapter.name}"
        say(f"3. Ship it: shoal push {adapter.name} --name {name}")
        upload_to_ready_s = push(stack, adapter, name)
        figures = ask(stack, name)
        print(json.dumps({"demo": "ok", "upload_to_ready_s": round(upload_to_ready_s, 2), **figures}))


def _size(folder: Path) -> float:
    return (folder / "adapter_model.safetensors").stat().st_size / 1000


def _team(stack: Addresses) -> str:
    with Shoal(connection=Connection(stack.web, stack.api_key)) as shoal:
        return shoal.me().team


def push(stack: Addresses, adapter: Path, name: str) -> float:
    """Runs the ``shoal`` command as a person would; seconds from its start to the verdict."""
    command = [sys.executable, "-m", "client", "push", str(adapter), "--name", name, "--message", "first try"]
    environment = {**os.environ, "SHOAL_URL": stack.web, "SHOAL_API_KEY": stack.api_key}
    started = time.monotonic()
    if subprocess.run(command, env=environment, check=False).returncode != 0:
        raise DemoError("the adapter was not accepted, see the rows above")
    return time.monotonic() - started


def ask(stack: Addresses, name: str) -> dict[str, float]:
    """First and warm requests, quality of base and adapter, live samples: the figures of the JSON line."""
    heldout = read_pairs("heldout")
    with OpenAI(base_url=f"{stack.gateway}/v1", api_key=stack.api_key, max_retries=0) as client:
        say("4. Ask base and adapter through the OpenAI client")
        warm_base_ms = _warm_p50_ms(client, BASE_MODEL)
        first_ms = _timed_ms(client, name, heldout[0][0])
        warm_ms = _warm_p50_ms(client, name)
        out.print(f"first request to the adapter {first_ms:.1f} ms, then {warm_ms:.1f} ms (base {warm_base_ms:.1f} ms)")
        _show_nearest(client, name, heldout)
        say("5. Watch the device while the held-out part is measured")
        with Watching(stack, show=out.print):
            base = recall_at(client, BASE_MODEL, heldout, at=1)
            adapted = recall_at(client, name, heldout, at=1)
    say(f"6. Retrieval on {len(heldout)} held-out pairs")
    out.print(f"recall@1   base {base:.3f}   adapter {adapted:.3f}")
    if adapted <= base:
        raise DemoError(f"the adapter does not improve retrieval: {adapted:.3f} against {base:.3f}")
    return {
        "first_request_ms": round(first_ms, 1),
        "warm_p50_ms": round(warm_ms, 1),
        "base_recall_at_1": round(base, 3),
        "adapter_recall_at_1": round(adapted, 3),
    }


def _timed_ms(client: OpenAI, model: str, text: str) -> float:
    started = time.perf_counter()
    client.embeddings.create(model=model, input=text)
    return (time.perf_counter() - started) * 1000


def _warm_p50_ms(client: OpenAI, model: str) -> float:
    texts = [query for query, _ in read_pairs("train")[: WARM_REQUESTS + 5]]
    return statistics.median([_timed_ms(client, model, text) for text in texts][5:])


def _show_nearest(client: OpenAI, name: str, pairs: list[tuple[str, str]]) -> None:
    query, documents = pairs[0][0], [document for _, document in pairs]
    out.print(f"query      {query}")
    for label, model in (("base", BASE_MODEL), ("adapter", name)):
        vectors = embed(client, model, [query, *documents])
        nearest = int((vectors[1:] @ vectors[0]).argmax())
        out.print(f"{label:<10} {'[green]right[/green]' if nearest == 0 else '[red]wrong[/red]'}  {documents[nearest]}")


if __name__ == "__main__":
    main()
