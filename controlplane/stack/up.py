"""``up``: takes the home, starts all parts, says where they are, and stops them in order."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from controlplane.stack.banner import describe_ready
from controlplane.stack.devices import find_devices
from controlplane.stack.environment import Environments, Sockets, given_environment
from controlplane.stack.failures import AlreadyRunningError, StackError
from controlplane.stack.first_request import answer_first_request
from controlplane.stack.home import Endpoints, Home, HomeLock
from controlplane.stack.logs import LinePrinter
from controlplane.stack.plan import Plan, plan_parts
from controlplane.stack.ports import PortReservations
from controlplane.stack.running import EXIT_FAILED, locked, run_parts
from controlplane.stack.settings import StackSettings, load_settings
from loras.validation.limits import SandboxLimits

EXIT_ALREADY_RUNNING = 4
# sun_path of unix(7), less room for the names of our sockets
_LONGEST_SOCKET_DIR = 80


def main(arguments: Sequence[str]) -> int:
    """Run the stack until it is told to stop; returns the exit status."""
    parser = argparse.ArgumentParser("manage.py up", description="Run all of Shoal on this machine, on loopback only.")
    parser.add_argument("--quiet", action="store_true", help="print only the stack's own lines and warnings")
    quiet = parser.parse_args(arguments).quiet
    try:
        settings = load_settings()
        with ExitStack() as stack:
            home = Home.prepare(settings.home)
            lock = stack.enter_context(locked(home))
            return _run(settings, home, lock, stack, quiet=quiet)
    except AlreadyRunningError as error:
        print(error, file=sys.stderr)
        return EXIT_ALREADY_RUNNING
    except StackError as error:
        print(error, file=sys.stderr)
        return EXIT_FAILED


def _run(settings: StackSettings, home: Home, lock: HomeLock, stack: ExitStack, *, quiet: bool) -> int:
    began = time.monotonic()
    home.forget_endpoints()
    first_boot = not home.credentials_path.exists()
    ports = PortReservations()
    stack.callback(ports.release)
    endpoints = _choose_endpoints(settings, ports)
    environments = Environments(
        home, endpoints, Sockets(*_socket_paths(home, stack)), {**given_environment(), "SHOAL_HOME": str(home.root)}
    )
    plan = Plan(
        home,
        environments,
        find_devices(settings.devices),
        own_nats=not settings.nats_url,
        own_redis=not settings.redis_url,
        validation=SandboxLimits.for_validation(settings.validation_timeout_s, settings.validation_memory_bytes),
    )
    parts = plan_parts(plan)
    printer = LinePrinter(width=max(len(part.name) for part in parts), quiet=quiet)
    stack.callback(printer.close)

    async def announce() -> None:
        credentials = home.read_credentials()
        if credentials is not None and credentials.api_key is not None:
            await answer_first_request(endpoints, credentials.api_key, timeout_s=settings.boot_timeout_s)
        home.write_endpoints(endpoints)
        printer.block(describe_ready(home, endpoints, first_boot=first_boot, took_s=time.monotonic() - began))

    return run_parts(parts, home=home, lock=lock, printer=printer, on_ready=announce, timeout_s=settings.boot_timeout_s)


def _choose_endpoints(settings: StackSettings, ports: PortReservations) -> Endpoints:
    def on_loopback(scheme: str, wanted: int, setting: str, path: str = "") -> str:
        return f"{scheme}://127.0.0.1:{ports.reserve(wanted, setting=setting)}{path}"

    return Endpoints(
        web=on_loopback("http", settings.web_port, "SHOAL_WEB_PORT"),
        gateway=on_loopback("http", settings.gateway_port, "SHOAL_GATEWAY_PORT"),
        nats=settings.nats_url or on_loopback("nats", settings.nats_port, "SHOAL_NATS_PORT"),
        redis=settings.redis_url or on_loopback("redis", settings.redis_port, "SHOAL_REDIS_PORT", "/0"),
    )


def _socket_paths(home: Home, stack: ExitStack) -> tuple[Path, Path]:
    """Paths of the sidecar's and the probe's socket: in the home, or in a short place when the home's path is long."""
    folder = home.run_dir
    if len(os.fsencode(folder)) > _LONGEST_SOCKET_DIR:
        folder = Path(tempfile.mkdtemp(prefix="shoal-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
    paths = folder / "sidecar.sock", folder / "probe.sock"
    for path in paths:
        path.unlink(missing_ok=True)
    return paths
