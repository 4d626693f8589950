"""A light HTTP load: closed loop over kept-alive connections, one protocol object each, no client library.

On a machine whose cores the server needs too, an ordinary client costs as much as what is measured; this one costs
about 0.03 ms of processor a request, and its cost is measured along.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import uvloop

HEAD_END = b"\r\n\r\n"
LENGTH = b"content-length: "
OK = b"HTTP/1.1 200 "


@dataclass(slots=True)
class Outcome:
    """What the requests of one run took: latencies in seconds, failures by the answer's first line."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    latencies: list[float] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)

    @property
    def per_second(self) -> float:
        """Answered requests per second."""
        return len(self.latencies) / self.seconds

    def percentile_ms(self, share: float) -> float:
        """Latency below which ``share`` of the answers lie."""
        ranked = sorted(self.latencies)
        return 1000 * ranked[min(len(ranked) - 1, int(len(ranked) * share))]


class Caller(asyncio.Protocol):
    """One connection: sends the next request when the answer is complete, until ``end``."""

    def __init__(self, requests: Iterator[bytes], outcome: Outcome, end: float) -> None:
        self._requests = requests
        self._outcome = outcome
        self._end = end
        self._began = 0.0
        self._missing = -1
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        if self._missing < 0:
            self._buffer += data
            head_end = self._buffer.find(HEAD_END)
            if head_end < 0:
                return
            head = self._buffer[:head_end]
            if not head.startswith(OK):
                line = head.partition(b"\r\n")[0].decode()
                self._outcome.failures[line] = self._outcome.failures.get(line, 0) + 1
            at = head.index(LENGTH) + len(LENGTH)
            length_end = head.find(b"\r", at)
            self._missing = int(head[at:] if length_end < 0 else head[at:length_end])
            data, self._buffer = self._buffer[head_end + 4 :], head[: len(OK)]
        self._missing -= len(data)
        if self._missing == 0:
            now = time.perf_counter()
            if self._buffer == OK:
                self._outcome.latencies.append(now - self._began)
            self._missing, self._buffer = -1, b""
            if now < self._end:
                self._send()
            else:
                self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self._outcome.failures["connection lost"] = self._outcome.failures.get("connection lost", 0) + 1
            self._finish()

    def _send(self) -> None:
        assert self._transport is not None
        self._began = time.perf_counter()
        self._transport.write(next(self._requests))

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
        if self._transport is not None:
            self._transport.close()


def post(path: str, body: object, key: str) -> bytes:
    """A whole POST request with a JSON body."""
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def run_load(port: int, requests: Iterator[bytes], *, clients: int, seconds: float) -> Outcome:
    """Send ``requests`` over ``clients`` connections to ``port`` of this machine for ``seconds``."""
    outcome = Outcome()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        began, cpu = time.perf_counter(), time.process_time()
        end = began + seconds
        made = [
            await loop.create_connection(lambda: Caller(requests, outcome, end), "127.0.0.1", port)
            for _ in range(clients)
        ]
        callers = [caller for _, caller in made]
        await asyncio.gather(*(caller.done for caller in callers))
        outcome.seconds = time.perf_counter() - began
        outcome.cpu_s = time.process_time() - cpu

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
    return outcome
