"""``python -m sidecar.conformance {sidecar,worker} …``: runs the suite, one line per check; exit 1 when one fails."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from fabric.connection import connect
from sidecar.conformance.checks import Outcome, run_checks
from sidecar.conformance.sidecar_checks import SIDECAR_CHECKS, SidecarSubject
from sidecar.conformance.worker_checks import WORKER_CHECKS
from sidecar.conformance.worker_stage import WorkerSubject
from wire import codec
from wire.registry import ModelRecord


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sidecar.conformance", description=__doc__)
    sides = parser.add_subparsers(dest="side", required=True)
    sidecar = sides.add_parser("sidecar", help="play a worker on a running sidecar's socket")
    sidecar.add_argument("--socket", type=Path, required=True)
    sidecar.add_argument("--nats", default="nats://127.0.0.1:4222", help="the server the sidecar pulls from")
    worker = sides.add_parser("worker", help="play the sidecar for a worker command")
    worker.add_argument("--model", type=Path, required=True, help="JSON of the base model's record")
    worker.add_argument("command", nargs="+", help="the worker; SHOAL_SOCKET is set for it")
    return parser.parse_args()


async def _run(arguments: argparse.Namespace) -> list[Outcome]:
    if arguments.side == "sidecar":
        connection = await connect(arguments.nats, name="conformance")
        try:
            return await run_checks(SIDECAR_CHECKS, SidecarSubject(arguments.socket, connection))
        finally:
            await connection.close()
    model = codec.decode_json(arguments.model.read_bytes(), ModelRecord)
    with tempfile.TemporaryDirectory(prefix="shoal-") as directory:
        async with WorkerSubject(arguments.command, model, Path(directory)) as subject:
            return await run_checks(WORKER_CHECKS, subject)


def main() -> int:
    """Exit status: 0 when every check held."""
    outcomes = asyncio.run(_run(_arguments()))
    for outcome in outcomes:
        sys.stdout.write(f"{'FAIL' if outcome.problem else 'ok  '}  {outcome.sentence}\n")
        if outcome.problem:
            sys.stdout.write(f"      {outcome.problem}\n")
    return 1 if any(outcome.problem for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
