"""Utilization read from the fleet's WebSocket while something else runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import httpx
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from examples.temporary_stack import Addresses

SAMPLES = 4
TIMEOUT_S = 30.0


class NoSamplesError(RuntimeError):
    """The socket refused, broke or stayed silent."""


class Watching:
    """Shows some samples while its block runs, and raises ``NoSamplesError`` at its end when they did not come."""

    def __init__(self, stack: Addresses, *, show: Callable[[str], None]) -> None:
        self._stack = stack
        self._show = show
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            return
        self._thread.join(timeout=TIMEOUT_S)
        if self._failure is not None:
            raise NoSamplesError(f"no live samples from /ws/fleet/: {self._failure}")
        if self._thread.is_alive():
            raise NoSamplesError(f"no live samples from /ws/fleet/ within {TIMEOUT_S:.0f} s")

    def _watch(self) -> None:
        url = httpx.URL(self._stack.web).copy_with(scheme="ws", path="/ws/fleet/")
        headers = {"Authorization": f"Bearer {self._stack.api_key}"}
        try:
            with connect(str(url), additional_headers=headers) as socket:
                shown = 0
                while shown < SAMPLES:
                    workers = json.loads(socket.recv(timeout=TIMEOUT_S)).get("workers", ())
                    for worker in workers:
                        self._show(sample_line(worker))
                    shown += bool(workers)
        except (WebSocketException, OSError, TimeoutError, ValueError, KeyError) as error:
            self._failure = error


def sample_line(worker: dict[str, Any]) -> str:
    """One worker's last second in words; what nobody knows is called unknown."""
    figures = worker["figures"]
    return (
        f"{worker['worker']}: utilization {_share(figures['utilization'])}, busy {_share(figures['busy'])}, "
        f"{figures['requests_per_s']:.0f} requests/s, {figures['tokens_per_s']:.0f} tokens/s"
    )


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{100 * value:.0f} %"
