"""What ended requests ran on and how they went, told to the control plane once a second."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass, field

from nats.errors import Error as NatsError

from fabric.connection import Connection
from gateway.routing import Target
from wire import codec, subjects
from wire.errors import HTTP_STATUS, Code
from wire.registry import KeyRecord
from wire.usage import LATENCY_BOUNDS_MS, TargetUsage, Usage

INTERVAL_S = 1.0
# About 400 KB of message. While NATS is away counts wait here; what exceeds this is not counted.
MAX_TARGETS = 2_000
MAX_KEYS = 5_000

Kind = tuple[str, str, str | None]


@dataclass(slots=True)
class _Count:
    requests: int = 0
    refused: int = 0
    tokens: int = 0
    latency_sum_ms: float = 0.0
    latency: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_MS) + 1))
    failed: dict[str, int] = field(default_factory=dict)


class UsageMeter:
    """Counts by team, target and alias since the last message."""

    def __init__(self) -> None:
        self._counts: dict[Kind, _Count] = {}
        self._keys: set[str] = set()

    def note_key(self, key: KeyRecord) -> None:
        """``key`` was used."""
        if len(self._keys) < MAX_KEYS:
            self._keys.add(key.id)

    def count(self, key: KeyRecord, target: Target, code: Code | None, seconds: float, tokens: int) -> None:
        """Count a request that ended with ``code``, or was answered (``None``)."""
        kind = (key.team, target.version, target.alias)
        count = self._counts.get(kind)
        if count is None:
            if len(self._counts) >= MAX_TARGETS:
                return
            count = self._counts[kind] = _Count()
        count.requests += 1
        count.tokens += tokens
        if code is None:
            milliseconds = seconds * 1000
            count.latency[bisect_left(LATENCY_BOUNDS_MS, milliseconds)] += 1
            count.latency_sum_ms += milliseconds
        elif HTTP_STATUS[code] >= 500:
            count.failed[code] = count.failed.get(code, 0) + 1
        else:
            count.refused += 1

    def take(self, gateway_id: str, now: float) -> Usage | None:
        """Everything since the last call; ``None`` when nothing happened."""
        if not self._counts and not self._keys:
            return None
        counts, self._counts = self._counts, {}
        keys, self._keys = self._keys, set()
        targets = [
            TargetUsage(
                team=team,
                target=target,
                alias=alias,
                requests=count.requests,
                latency=count.latency,
                latency_sum_ms=round(count.latency_sum_ms, 3),
                tokens=count.tokens,
                failed=count.failed,
                refused=count.refused,
            )
            for (team, target, alias), count in counts.items()
        ]
        return Usage(gateway=gateway_id, at=now, targets=targets, keys=sorted(keys))

    async def run(self, connection: Connection, gateway_id: str) -> None:
        """Publish once a second, until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self.publish(connection, gateway_id)

    async def publish(self, connection: Connection, gateway_id: str) -> None:
        """Publish what there is, unless the connection is away: then it waits."""
        if not connection.is_connected:
            return
        usage = self.take(gateway_id, time.time())
        if usage is not None:
            # Usage can be lost without any effect on serving.
            with suppress(NatsError):
                await connection.publish(subjects.usage(gateway_id), codec.encode(usage))
