"""A stack of a few real children, run as its own process: real servers and one program that obeys files.

``python -m tests.integration.stack.small_stack HOME``. Each part writes ``HOME/<name>.pids``, one line per life.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path

from controlplane.stack.checks import FileTouched, NatsReady, RedisReady
from controlplane.stack.failures import StackError
from controlplane.stack.home import Endpoints, Home
from controlplane.stack.logs import LinePrinter
from controlplane.stack.parts import Part, StopStage
from controlplane.stack.ports import PortReservations
from controlplane.stack.running import locked, run_parts
from tests.servers import nats_command, valkey_command

# an obedient program: says who it is, starts a child in a session of its own, and writes when it is told to stop
PROGRAM = """
import os, pathlib, signal, subprocess, sys, time
home, name = pathlib.Path(sys.argv[1]), sys.argv[2]
def stop(*_):
    with (home / "stopped").open("a") as file: file.write(name + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if (home / f"{name}.stubborn").exists() else stop)
escaped = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
with (home / f"{name}.pids").open("a") as file: file.write(f"{os.getpid()} {escaped.pid}\\n")
print(f"{name} says hello", flush=True)
if (home / f"{name}.crash").exists():
    sys.exit(3)
(home / f"{name}.up").touch()
while True: time.sleep(60)
"""


def obedient(home: Home, name: str, **options: object) -> Part:
    root = home.root
    return Part(
        name,
        (sys.executable, "-c", PROGRAM, str(root), name),
        dict(os.environ),
        check=FileTouched(root / f"{name}.up"),
        grace_s=1.0,
        **options,  # type: ignore[arg-type]
    )


def main() -> int:
    with ExitStack() as stack:
        home = Home.prepare(Path(sys.argv[1]))
        lock = stack.enter_context(locked(home))
        ports = PortReservations()
        stack.callback(ports.release)
        nats, redis = ports.reserve(0, setting="NATS"), ports.reserve(0, setting="REDIS")
        parts = [
            Part(
                "nats",
                tuple(nats_command(home.root, nats)),
                dict(os.environ),
                check=NatsReady("127.0.0.1", nats),
                stop_stage=StopStage.STORE,
            ),
            Part(
                "valkey",
                tuple(valkey_command(home.root, redis)),
                dict(os.environ),
                check=RedisReady("127.0.0.1", redis),
                stop_stage=StopStage.STORE,
            ),
            Part("prepare", (sys.executable, "-c", "print('prepared')"), dict(os.environ), once=True),
            obedient(home, "edge", needs=("nats", "valkey", "prepare"), stop_stage=StopStage.EDGE),
            obedient(home, "work", needs=("nats",), stop_stage=StopStage.WORK),
            obedient(home, "transport", niceness=3, stop_stage=StopStage.TRANSPORT),
        ]
        endpoints = Endpoints("http://web", "http://gateway", f"nats://127.0.0.1:{nats}", f"redis://127.0.0.1:{redis}")
        printer = LinePrinter(width=9)
        stack.callback(printer.close)

        async def announce() -> None:
            home.write_endpoints(endpoints)

        return run_parts(
            parts,
            home=home,
            lock=lock,
            printer=printer,
            on_ready=announce,
            timeout_s=float(os.environ.get("SMALL_STACK_TIMEOUT_S", "60")),
        )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except StackError as error:
        sys.exit(str(error))
