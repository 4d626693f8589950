"""``python -m gateway``: one gateway process."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys

import structlog
import uvloop
from pydantic import ValidationError

from fabric.logs import configure_logs
from fabric.topology import TopologyConflict
from gateway.plane import Gateway
from gateway.serve import build_server, serve
from gateway.settings import GatewaySettings

log = structlog.get_logger("gateway")

EXIT_SETTINGS = 2
GC_OBJECTS = 20_000


def main() -> int:
    """Run until a signal; 0 after an orderly end, 2 for wrong settings or a queue that is otherwise."""
    try:
        settings = GatewaySettings()
    except ValidationError as error:
        for problem in error.errors():
            name = ".".join(str(part) for part in problem["loc"]) or "settings"
            print(f"gateway: {name}: {problem['msg']}", file=sys.stderr)
        return EXIT_SETTINGS
    configure_logs(logging.getLevelNamesMapping()[settings.log_level.upper()])
    # Requests leave no cycles behind: the collector need not walk what was imported, nor look every 700 objects.
    gc.freeze()
    gc.set_threshold(GC_OBJECTS, 20, 20)
    gateway = Gateway(settings)
    log.info("gateway starts", host=settings.host, port=settings.port, id=gateway.id)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(gateway, build_server(gateway)))
    except TopologyConflict as error:
        log.error("the queue cannot be used as configured", reason=str(error))  # noqa: TRY400 - the reason says all
        return EXIT_SETTINGS
    return 0


if __name__ == "__main__":
    sys.exit(main())
