"""Keeps as much asked for as the workers have room for, and no more: the queue keeps what nobody here could start.

Consumers of models that a worker holds have open asks all the time. For models that no worker of this machine holds,
a hint (``demand.>``) or a look once a second leads to an ask, after a short courtesy to machines that hold them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from sidecar.broker.link import Link
from sidecar.broker.pull import ConsumerPull, Deliver
from sidecar.queueing.room import TokenAverage, room_jobs, share_asks

log = structlog.get_logger(__name__)

TICK_S = 0.25
COURTESY_S = 0.05
COLD_LOOK_S = 1.0
COLD_EXPIRES_S = 1.0
ROTATE_EXPIRES_S = 1.0
WEIGHT_DECAY = 0.8
COLD_SHARE = 8


@dataclass(frozen=True, slots=True)
class Appetite:
    """What the machine can take now. ``rooms_tokens``: per worker; ``resident``/``servable``: base model ids."""

    rooms_tokens: list[int]
    ready_tokens: int
    resident: frozenset[str]
    servable: frozenset[str]


class Puller:
    """Stage that opens pull requests for the models of a pool."""

    def __init__(
        self,
        link: Link,
        pool: str,
        appetite: Callable[[], Appetite],
        deliver: Deliver,
        *,
        expires_s: float,
        stall_s: float,
        max_ask_jobs: int,
    ) -> None:
        self._link = link
        self._pool = pool
        self._appetite = appetite
        self._deliver = deliver
        self._expires_s = expires_s
        self._stall_s = stall_s
        self._max_ask_jobs = max_ask_jobs
        self.average = TokenAverage()
        self._streams: dict[str, ConsumerPull] = {}
        self._models: frozenset[str] = frozenset()
        self._cold_due: dict[str, float] = {}
        self._wake = asyncio.Event()
        self._turn = 0
        self._stopping = False

    def set_models(self, models: frozenset[str]) -> None:
        """Base models of the pool."""
        self._models = models
        self.wake()

    def wake(self) -> None:
        """Room or models changed."""
        self._wake.set()

    def hint(self, model: str) -> None:
        """Somebody published work for ``model``."""
        due = self._now() + COURTESY_S
        self._cold_due[model] = min(due, self._cold_due.get(model, due))
        self.wake()

    @property
    def outstanding(self) -> int:
        """Jobs asked for and not delivered."""
        return sum(one.outstanding for one in self._streams.values())

    async def stop(self) -> None:
        """Take all asks back; what is on its way is delivered before this returns."""
        self._stopping = True
        await asyncio.gather(*(one.close() for one in self._streams.values()))

    async def run(self) -> None:
        """Stage: asks whenever something changed, and looks after the open asks four times a second."""
        checked = 0.0
        while True:
            try:
                async with asyncio.timeout(self._next_wait()):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            if self._stopping:
                continue
            now = self._now()
            if now - checked >= TICK_S:
                checked = now
                await self._check()
            await self._ask()

    def _next_wait(self) -> float:
        now = self._now()
        # a look that is due already waits for room, and room wakes: counting it here would spin until there is some
        return min([TICK_S, *(due - now for due in self._cold_due.values() if due > now)])

    async def _check(self) -> None:
        for model in [model for model in self._streams if model not in self._models]:
            await self._streams.pop(model).close()
        servable = self._appetite().servable
        for one in list(self._streams.values()):
            one.weight *= WEIGHT_DECAY
            if one.model not in servable and one.outstanding:
                # The workers are gone: what was asked for them is for other machines now.
                await one.close()
            await one.check(self._stall_s)

    async def _ask(self) -> None:
        appetite = self._appetite()
        resident = appetite.resident & self._models
        wanted = room_jobs(appetite.rooms_tokens, appetite.ready_tokens, self.average)
        cold = (appetite.servable & self._models) - resident
        # Open asks would take all room for good, and a model that nobody holds would never be looked at.
        reserve = wanted // COLD_SHARE if cold else 0
        await self._ask_resident(resident, wanted - reserve)
        await self._ask_cold(cold, wanted)

    async def _ask_resident(self, resident: frozenset[str], wanted: int) -> None:
        weights = {model: self._stream(model).weight for model in resident}
        rotating = 0 < wanted < len(weights)
        expires_s = ROTATE_EXPIRES_S if rotating else self._expires_s
        free = wanted - self.outstanding
        if rotating and free > 0:
            self._turn += 1
        for model, share in share_asks(wanted, weights, self._turn).items():
            stream = self._stream(model)
            ask = min(share - stream.outstanding, free, self._max_ask_jobs)
            if ask > 0:
                await stream.ask(ask, expires_s)
                free -= ask

    async def _ask_cold(self, cold: frozenset[str], wanted: int) -> None:
        now = self._now()
        for model in list(self._cold_due):
            if model not in cold:
                del self._cold_due[model]
        for model in cold:
            due = self._cold_due.setdefault(model, now + COLD_LOOK_S)
            if now < due or wanted <= 0 or self._stream(model).outstanding:
                continue
            # One job at least, even beyond the room: the bound on how long a cold model can be kept waiting.
            free = max(1, min(wanted - self.outstanding, self._max_ask_jobs))
            del self._cold_due[model]
            pending = await self._stream(model).pending()
            if pending > 0:
                await self._stream(model).ask(min(free, pending), COLD_EXPIRES_S)

    def _stream(self, model: str) -> ConsumerPull:
        stream = self._streams.get(model)
        if stream is None:
            stream = ConsumerPull(self._link, self._pool, model, self._deliver, self.wake)
            self._streams[model] = stream
        return stream

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
