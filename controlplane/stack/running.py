"""Runs parts under a lock and a guard until a signal or a failure ends them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from controlplane.stack import guard
from controlplane.stack.failures import StackError
from controlplane.stack.home import Home, HomeLock
from controlplane.stack.logs import LinePrinter
from controlplane.stack.parts import Part
from controlplane.stack.supervisor import Supervisor

EXIT_FAILED = 1
_GUARD_GRACE_S = 5.0


def run_parts(
    parts: Sequence[Part],
    *,
    home: Home,
    lock: HomeLock,
    printer: LinePrinter,
    on_ready: Callable[[], Awaitable[None]],
    timeout_s: float,
) -> int:
    """Run ``parts`` until SIGINT, SIGTERM or SIGHUP (0) or until they cannot start (1); ``on_ready`` is called once."""
    mark = uuid.uuid4().hex

    async def serve() -> int:
        supervisor = Supervisor(parts, mark=mark, printer=printer)
        return await _serve(supervisor, printer, on_ready, timeout_s=timeout_s)

    with _guarded(mark, lock.fd, home.endpoints_path):
        return asyncio.run(serve())


@contextmanager
def locked(home: Home) -> Iterator[HomeLock]:
    """Hold ``home`` for this process; raises ``AlreadyRunningError``."""
    lock = HomeLock(home)
    lock.acquire()
    try:
        yield lock
    finally:
        lock.release()


@contextmanager
def _guarded(mark: str, lock_fd: int, endpoints_path: Path) -> Iterator[None]:
    """A guard process that outlives this one, and then ends what carries ``mark`` and removes the endpoints.

    It holds the home's lock until it is done.
    """
    read_fd, write_fd = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__, str(read_fd), mark, str(_GUARD_GRACE_S), str(endpoints_path)],
        pass_fds=(read_fd, lock_fd),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(read_fd)
    try:
        yield
    finally:
        os.close(write_fd)
        process.wait()


async def _serve(
    supervisor: Supervisor, printer: LinePrinter, announce: Callable[[], Awaitable[None]], *, timeout_s: float
) -> int:
    """Start, watch until a signal or a failure, stop; returns the exit status."""
    asked = asyncio.Event()

    def on_signal(number: signal.Signals) -> None:
        if not asked.is_set():
            printer.line("stack", f"{number.name}: stopping; Ctrl-C again kills at once", loud=True)
        elif number is signal.SIGINT:
            printer.line("stack", "killing what is left", loud=True)
            supervisor.kill()
        asked.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal, number)
    work = asyncio.create_task(_start_and_watch(supervisor, announce, timeout_s=timeout_s))
    waiter = asyncio.create_task(asked.wait())
    try:
        await asyncio.wait({work, waiter}, return_when=asyncio.FIRST_COMPLETED)
        if asked.is_set():
            return 0
        await work
    except StackError as error:
        for line in str(error).splitlines():
            printer.line("stack", line, loud=True)
    finally:
        work.cancel()
        waiter.cancel()
        await supervisor.stop()
        printer.line("stack", "all parts stopped", loud=True)
    return EXIT_FAILED


async def _start_and_watch(
    supervisor: Supervisor, announce: Callable[[], Awaitable[None]], *, timeout_s: float
) -> None:
    await supervisor.start(timeout_s=timeout_s)
    await announce()
    await supervisor.watch()
