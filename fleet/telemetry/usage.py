"""Usage of the gateways on its way into Redis: one hash a minute, one field for each message.

Writing a message twice changes nothing, so that several bridges may hear the same gateways. What a minute holds is
summed up when it is read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

import structlog
from django.conf import settings
from redis import Redis
from redis.exceptions import RedisError

from fleet.telemetry import keys
from wire.codec import WireDecodeError, decode, encode
from wire.usage import Usage

MINUTE_S = 60
MAX_PENDING = 2_000
MAX_PENDING_BYTES = 16 * 1024 * 1024
MAX_TARGETS = 2_000
MAX_CLOCK_SKEW_S = 30.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class UsageIntake:
    """Messages not yet written, oldest dropped first beyond 2,000 or 16 MiB; ``key_ids`` are API keys seen in use."""

    pending: OrderedDict[tuple[int, str], bytes] = field(default_factory=OrderedDict)
    pending_bytes: int = 0
    key_ids: set[str] = field(default_factory=set)

    def add(self, usage: Usage, *, received: float) -> None:
        """Take one message; a gateway whose clock is far off is put down at the time of its arrival."""
        at = usage.at if abs(usage.at - received) <= MAX_CLOCK_SKEW_S else received
        kept = Usage(gateway=usage.gateway[:64], at=at, targets=usage.targets[:MAX_TARGETS])
        if kept.targets:
            minute = int(at) // MINUTE_S * MINUTE_S
            name, data = (minute, f"{kept.gateway}|{usage.at:.3f}"), encode(kept)
            self.mark_written([name])
            self.pending[name] = data
            self.pending_bytes += len(data)
            while len(self.pending) > MAX_PENDING or self.pending_bytes > MAX_PENDING_BYTES:
                self.mark_written([next(iter(self.pending))])
        if len(self.key_ids) < MAX_TARGETS:
            self.key_ids.update(usage.keys[:MAX_TARGETS])

    def mark_written(self, written: list[tuple[int, str]]) -> None:
        """Drop messages that Redis has, or that nobody waits for any more."""
        for name in written:
            self.pending_bytes -= len(self.pending.pop(name, b""))

    def take_key_ids(self) -> set[str]:
        """Keys seen since the last call."""
        taken, self.key_ids = self.key_ids, set()
        return taken


def recent_minutes(now: float, *, window_s: int) -> list[int]:
    """Starts of the minutes that reach into the last ``window_s`` seconds, oldest first."""
    first = int(now - window_s) // MINUTE_S * MINUTE_S
    return list(range(first, int(now) + 1, MINUTE_S))


def decoded_usage(values: Iterable[bytes | str]) -> list[Usage]:
    """Messages as they were; what another release wrote is left out, it expires."""
    found = []
    for data in values:
        if isinstance(data, str):
            # our connections decode nothing
            continue
        try:
            found.append(decode(data, Usage))
        except WireDecodeError:
            continue
    return found


def read_usage(*, since: float, now: float) -> list[Usage] | None:
    """Messages of the seconds from ``since`` on (at most what Redis keeps); ``None`` when Redis does not answer."""
    window_s = min(int(now - since) + 1, keys.USAGE_KEPT_S)
    client: Redis = Redis.from_url(settings.SHOAL.redis_url, socket_timeout=3, socket_connect_timeout=1)
    try:
        with client, client.pipeline(transaction=False) as pipe:
            for minute in recent_minutes(now, window_s=window_s):
                pipe.hvals(keys.usage(minute))
            rows: list[list[bytes]] = pipe.execute()
    except (RedisError, OSError) as error:
        log.warning("usage cannot be read from Redis", error=f"{type(error).__name__}: {error}")
        return None
    return [usage for row in rows for usage in decoded_usage(row) if usage.at >= since]
