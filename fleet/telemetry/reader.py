"""The pages' side of Redis: last states, machines and 15 minutes of points, read in one round trip and
shared."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from functools import cache

import structlog
from django.conf import settings
from redis import Redis
from redis.exceptions import RedisError

from fleet.telemetry import keys
from fleet.telemetry.points import Point
from fleet.telemetry.states import FORGET_AFTER_S, MachineState, WorkerState
from fleet.telemetry.stored import decode_known

SHARED_FOR_S = 0.9
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LiveView:
    """What Redis knew at ``at`` (seconds since the epoch). ``available`` is false when Redis could not be
    read."""

    at: float
    available: bool
    states: list[WorkerState] = field(default_factory=list)
    machines: list[MachineState] = field(default_factory=list)
    points: dict[str, list[Point]] = field(default_factory=dict)

    def state(self, key: str) -> WorkerState | None:
        """State of one worker."""
        return next((state for state in self.states if state.key == key), None)


class LiveReader:
    """Thread-safe; a view younger than 0.9 s is shared, so that fifty tabs that come back at once cost one
    read."""

    def __init__(self, url: str) -> None:
        self._redis: Redis = Redis.from_url(url, socket_timeout=3, socket_connect_timeout=1)
        self._lock = threading.Lock()
        self._view: LiveView | None = None

    def read(self) -> LiveView:
        """The current view; never raises for a Redis that is away."""
        with self._lock:
            view = self._view
            if view is None or time.time() - view.at >= SHARED_FOR_S:
                view = self._view = self._fetch()
            return view

    def _fetch(self) -> LiveView:
        now = time.time()
        try:
            with self._redis.pipeline(transaction=False) as pipe:
                pipe.hgetall(keys.states())
                pipe.hgetall(keys.machines())
                raw_states, raw_machines = pipe.execute()
            states = [s for s in decode_known(raw_states, WorkerState) if s.received > now - FORGET_AFTER_S]
            with self._redis.pipeline(transaction=False) as pipe:
                for state in states:
                    pipe.hgetall(keys.history(state.key))
                rings = pipe.execute()
        except (RedisError, OSError) as error:
            log.warning("live figures cannot be read from Redis", error=f"{type(error).__name__}: {error}")
            return LiveView(at=now, available=False)
        oldest = int(now) - keys.HISTORY_S
        points = {
            state.key: sorted((p for p in decode_known(ring, Point) if p.at > oldest), key=lambda point: point.at)
            for state, ring in zip(states, rings, strict=True)
        }
        states.sort(key=lambda state: (state.machine, state.worker))
        return LiveView(now, True, states, decode_known(raw_machines, MachineState), points)


@cache
def live_reader() -> LiveReader:
    """The reader of this process."""
    return LiveReader(settings.SHOAL.redis_url)
