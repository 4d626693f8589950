"""``python -m workers``: one worker process for one device."""

from __future__ import annotations

import argparse
import os
import sys

# These must be set before tokenizers and torch start their threads: the device's thread pool shall have the cores.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# A fine-tune's small files lie among its tensors, and transformers would list each of them as unexpected.
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
# Threads that wait for each other spin for microseconds and then sleep: they share the cores with the gateway, the
# sidecar and nats-server. MiniLM in bfloat16 on two cores, rows/s alone at 1 and 16 rows a pass: 302 and 995 so, 266
# and 836 with the library's long spinning, which also starves the neighbours, 148 and 727 with none.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

from pydantic import ValidationError

from workers.settings import WorkerSettings


def main() -> int:
    """Check the settings, then serve. Exit 2: settings are wrong, all errors printed."""
    parser = argparse.ArgumentParser(prog="python -m workers", description="Serve with one device.")
    parser.add_argument("--device", help="cpu, cuda, cuda:<index> or simulated:<name>; else SHOAL_DEVICE")
    device = parser.parse_args().device
    try:
        settings = WorkerSettings() if device is None else WorkerSettings(device=device)
    except ValidationError as error:
        for problem in error.errors():
            name = "SHOAL_" + "_".join(str(part) for part in problem["loc"]).upper()
            print(f"{name}: {problem['msg']}", file=sys.stderr)
        return 2
    os.environ["OMP_NUM_THREADS"] = str(settings.torch_threads)
    from workers.logs import configure_logs

    configure_logs()
    if settings.is_simulated:
        # without torch, which takes seconds and hundreds of megabytes: tens of these run side by side
        from workers.runtimes.simulated import serve
    else:
        from workers.engine.process import serve
    return serve(settings)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # daemon threads may sit in native code; the interpreter's own shutdown would wait for or crash on them
    os._exit(code)
