"""Running a gateway: the HTTP server and the plane as one task group, ended in order by a signal."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from contextlib import suppress

import structlog
import uvicorn

from fabric.tasks import end_task
from gateway.app import build_app
from gateway.plane import Gateway
from gateway.protocol import GatewayProtocol

log = structlog.get_logger(__name__)

KEEP_ALIVE_S = 75


class Server(uvicorn.Server):
    """uvicorn without its signal handling: it ends the process before the plane could close."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @property
    def ports(self) -> list[int]:
        """Ports that are listened on, known once ``started``."""
        return [int(sock.getsockname()[1]) for server in self.servers for sock in server.sockets]


def build_server(gateway: Gateway) -> Server:
    """The HTTP server of ``gateway``."""
    settings = gateway.settings
    return Server(
        uvicorn.Config(
            build_app(gateway),
            host=settings.host,
            port=settings.port,
            http=GatewayProtocol,
            ws="none",
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            # Nothing here looks at a client's address but the metrics, which must not believe a header.
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=settings.shutdown_grace_s,
        )
    )


async def serve(gateway: Gateway, server: Server) -> None:
    """Serve until SIGTERM, SIGINT or ``server.should_exit``: stop accepting, finish what runs, close the plane.

    Raises what ended the plane (``TopologyConflict``); the HTTP server stops then too.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Only a main thread may; elsewhere the caller sets ``should_exit``.
        with suppress(ValueError, RuntimeError):
            loop.add_signal_handler(number, _stop, server)
    plane = asyncio.create_task(gateway.run(), name="plane")
    plane.add_done_callback(lambda _: _stop(server))
    try:
        await server.serve()
    finally:
        await end_task(plane)
    log.info("gateway stopped")


def _stop(server: Server) -> None:
    server.should_exit = True
