"""``python -m workers.probe``: does the serving path give what PEFT, or plain transformers, gives for this version?

With a ProbeRequest as JSON on stdin it answers with a ProbeReply on stdout. With ``--serve SOCKET`` it keeps torch and
the base models in memory and forks one limited child for each request that comes over the Unix socket.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from confinement.limits import GIB, ProcessLimits, add_limits, limits_of
from wire.codec import decode_json, encode_json
from wire.validation import ProbeRequest

# a probe writes nothing of size: its report, and the small files of a model folder
_DEFAULTS = ProcessLimits(file_bytes=GIB)
# One thread each: a process that has run a parallel region must not fork, since the child waits for threads that
# do not exist in it. These are read when the libraries are first imported, which happens after main() began.
_SINGLE_THREADED = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


def main(arguments: list[str] | None = None) -> int:
    """One probe from stdin, or a server until SIGTERM."""
    options = _parse(arguments)
    os.environ.update(_SINGLE_THREADED)
    limits = limits_of(options)
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
    from workers.probe_run import load_base, probe

    base = None
    if request.kind == "lora":
        base = load_base(request.base_model, request.base_source, request.base_digest)
    reply = probe(base, request)
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
    add_limits(parser, _DEFAULTS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
