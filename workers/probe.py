"""``python -m workers.probe``: does the serving path give what PEFT gives for this adapter?

With a ProbeRequest as JSON on stdin it answers with a ProbeReply on stdout. With ``--serve SOCKET`` it keeps torch and
the base models in memory and forks one limited child for each request that comes over the Unix socket.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

from wire.codec import decode_json, encode_json
from wire.validation import ProbeRequest

_GIB = 1024**3
# One thread each: a process that has run a parallel region must not fork, since the child waits for threads that
# do not exist in it. These are read when the libraries are first imported, which happens after main() began.
_SINGLE_THREADED = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}


@dataclass(frozen=True, slots=True)
class ProbeLimits:
    """Bounds of the process that touches an adapter."""

    memory_bytes: int
    cpu_s: int
    file_bytes: int
    open_files: int

    def apply(self) -> None:
        """Bound the calling process for good."""
        for kind, amount in (
            (resource.RLIMIT_AS, self.memory_bytes),
            (resource.RLIMIT_CPU, self.cpu_s),
            (resource.RLIMIT_FSIZE, self.file_bytes),
            (resource.RLIMIT_NOFILE, self.open_files),
            (resource.RLIMIT_CORE, 0),
        ):
            _, hard = resource.getrlimit(kind)
            allowed = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
            resource.setrlimit(kind, (allowed, allowed))


def main(arguments: list[str] | None = None) -> int:
    """One probe from stdin, or a server until SIGTERM."""
    options = _parse(arguments)
    os.environ.update(_SINGLE_THREADED)
    limits = ProbeLimits(options.memory_bytes, options.cpu_s, options.file_bytes, options.open_files)
    if options.serve is not None:
        from workers.logs import configure_logs
        from workers.probe_server import serve

        configure_logs()
        serve(
            options.serve,
            limits=limits,
            timeout_s=options.timeout_s,
            children=options.children,
            preload=options.preload,
        )
        return 0
    limits.apply()
    reply_file = os.dup(sys.stdout.fileno())
    # whatever a library prints must not mix with the reply
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    request = decode_json(sys.stdin.buffer.read(), ProbeRequest)
    from workers.probe_run import load_base, probe_adapter

    reply = probe_adapter(load_base(request.base_model, request.base_source, request.base_digest), request)
    with os.fdopen(reply_file, "wb") as out:
        out.write(encode_json(reply))
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workers.probe", description="Compare serving with PEFT.")
    parser.add_argument("--serve", type=Path, metavar="SOCKET", help="stay, and answer over this Unix socket")
    parser.add_argument(
        "--preload", action="append", default=[], metavar="SOURCE", help="base model to load at once (repeatable)"
    )
    parser.add_argument("--children", type=int, default=2, help="probes at the same time")
    parser.add_argument("--timeout-s", type=float, default=60.0, help="wall clock of one probe")
    parser.add_argument("--memory-bytes", type=int, default=4 * _GIB)
    parser.add_argument("--cpu-s", type=int, default=60)
    parser.add_argument("--file-bytes", type=int, default=_GIB)
    parser.add_argument("--open-files", type=int, default=256)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
