"""``python -m sidecar``: reads the settings, serves until SIGTERM or SIGINT, exits non-zero when a stage dies."""

from __future__ import annotations

import asyncio
import signal
import sys

import structlog
import uvloop
from pydantic import ValidationError

from fabric.logs import configure_logs
from sidecar.service import Sidecar
from sidecar.settings import SidecarSettings

log = structlog.get_logger("sidecar")


async def _serve(settings: SidecarSettings) -> None:
    sidecar = Sidecar(settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, sidecar.stop)
    await sidecar.run()


def main() -> int:
    """Exit status: 0 after an orderly end, 1 when a stage died or the boot failed, 2 for wrong settings."""
    configure_logs()
    try:
        settings = SidecarSettings()
    except ValidationError as error:
        for problem in error.errors():
            where = ".".join(str(part) for part in problem["loc"]) or "settings"
            sys.stderr.write(f"sidecar: {where}: {problem['msg']}\n")
        return 2
    try:
        uvloop.run(_serve(settings))
    except BaseExceptionGroup as group:
        for cause in group.exceptions:
            log.exception("a stage of the sidecar died", exc_info=cause)
        return 1
    except Exception as error:
        log.exception("the sidecar cannot serve", error=f"{type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
