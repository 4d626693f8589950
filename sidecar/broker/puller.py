"""Keeps as much asked for as the workers have room for, and no more: the queue keeps what nobody here could start.

*Home* sources have open asks all the time: the home lanes of models that a worker here holds. For all others (models
that no worker here holds, lanes at home elsewhere) a hint (``demand.>``) or a second's passing leads to one look at
the whole stream, after a short courtesy to the machines that are at home there; what waits is then asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import nats.errors
import structlog
from nats.js.errors import APIError

from fabric.tasks import end_task
from sidecar.broker.link import Link, Source
from sidecar.broker.pull import ConsumerPull, Deliver
from sidecar.broker.removed import RemovedModels
from sidecar.queueing.room import TokenAverage, room_jobs, share_asks
from wire.subjects import LANE

log = structlog.get_logger(__name__)

TICK_S = 0.25
COURTESY_S = 0.05
LOOK_S = 1.0
COLD_EXPIRES_S = 1.0
ROTATE_EXPIRES_S = 1.0
WEIGHT_DECAY = 0.8
COLD_SHARE = 8
COLD_JOBS = 32
# A subscription costs little, but a registry has thousands of versions and each is cold most of the time.
IDLE_S = 60.0


@dataclass(frozen=True, slots=True)
class Appetite:
    """What the machine can take now. ``rooms_tokens``: per worker; ``resident``/``servable``: ids of models."""

    rooms_tokens: list[int]
    ready_tokens: int
    resident: frozenset[str]
    servable: frozenset[str]


class Puller:
    """Stage that opens pull requests for the models of a pool. ``home`` gives the home lanes of a model, ``held``
    how many of its jobs are here."""

    def __init__(
        self,
        link: Link,
        pool: str,
        appetite: Callable[[], Appetite],
        deliver: Deliver,
        home: Callable[[str], frozenset[str]],
        held: Callable[[str], int],
        removed: RemovedModels,
        *,
        expires_s: float,
        stall_s: float,
        max_ask_jobs: int,
    ) -> None:
        self._link = link
        self._pool = pool
        self._appetite = appetite
        self._deliver = deliver
        self._home = home
        self._held = held
        self._removed = removed
        self._expires_s = expires_s
        self._stall_s = stall_s
        self._max_ask_jobs = max_ask_jobs
        self.average = TokenAverage()
        self._streams: dict[Source, ConsumerPull] = {}
        self._models: frozenset[str] = frozenset()
        self._look_due = 0.0
        self._away: frozenset[str] = frozenset()
        self._looking: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._turn = 0
        self._stopping = False

    def set_models(self, models: frozenset[str]) -> None:
        """Models of the pool."""
        self._models = models
        self._removed.set_models(models, self._now())
        self.wake()

    def wake(self) -> None:
        """Room or models changed."""
        self._wake.set()

    def hint(self, model: str) -> None:
        """Somebody published work for ``model``: worth a look if any of it can be where this machine is not at home."""
        if self._open(Source(self._pool, model)) and len(self._home(model)) == 1 and model not in self._away:
            return
        self._look_due = min(self._look_due, self._now() + COURTESY_S)
        self.wake()

    @property
    def outstanding(self) -> int:
        """Jobs asked for and not delivered."""
        return sum(one.outstanding for one in self._streams.values())

    @property
    def _awaited(self) -> int:
        """Those of them that will come soon: of sources that gave something lately."""
        return sum(one.outstanding for one in self._streams.values() if one.weight >= 1.0)

    async def stop(self) -> None:
        """Take all asks back; what is on its way is delivered before this returns."""
        self._stopping = True
        if self._looking is not None:
            await end_task(self._looking)
        await asyncio.gather(*(one.close() for one in self._streams.values()))

    async def run(self) -> None:
        """Stage: asks whenever something changed, and looks after the open asks four times a second."""
        try:
            await self._run()
        finally:
            if self._looking is not None:
                self._looking.cancel()

    async def _run(self) -> None:
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
                await self._check(now)
            await self._ask()

    def _next_wait(self) -> float:
        left = self._look_due - self._now()
        # a look that is due already waits for room, and room wakes: counting it here would spin until there is some
        return min(TICK_S, left) if left > 0 else TICK_S

    async def _check(self, now: float) -> None:
        servable = self._appetite().servable
        for source, one in list(self._streams.items()):
            one.weight *= WEIGHT_DECAY
            if one.outstanding and source.model not in servable and source.model in self._models:
                # The workers are gone: what was asked for them is for other machines now.
                await one.close()
            if not one.outstanding and now - one.asked >= IDLE_S:
                await self._streams.pop(source).close()
                continue
            await one.check(self._stall_s)

    async def _ask(self) -> None:
        appetite = self._appetite()
        resident = appetite.resident & self._models
        home = {Source(self._pool, model, lane) for model in resident for lane in self._home(model)}
        wanted = room_jobs(appetite.rooms_tokens, appetite.ready_tokens, self.average)
        cold = (appetite.servable & self._models) - resident
        # Open asks would take all room for good, and what is at home nowhere would never be looked at.
        reserve = wanted // COLD_SHARE if cold or any(source.lane != LANE for source in home) else 0
        await self._ask_home(home, wanted - reserve)
        now = self._now()
        if self._looking is not None and self._looking.done():
            self._looking.result()
            self._looking = None
        if wanted > 0 and now >= self._look_due and self._looking is None and self._link.ready:
            self._look_due = now + LOOK_S
            # A server that is slow to answer must not keep the open asks waiting.
            self._looking = asyncio.create_task(self._look(appetite.servable & self._models, resident, wanted))

    async def _ask_home(self, home: Iterable[Source], wanted: int) -> None:
        weights = {source: self._stream(source).weight for source in home}
        rotating = 0 < wanted < len(weights)
        expires_s = ROTATE_EXPIRES_S if rotating else self._expires_s
        free = wanted - self.outstanding
        if rotating and free > 0:
            self._turn += 1
        for source, share in share_asks(wanted, weights, self._turn).items():
            stream = self._stream(source)
            ask = min(share - stream.outstanding, free, self._max_ask_jobs)
            if ask > 0:
                await stream.ask(ask, expires_s)
                free -= ask

    async def _look(self, servable: frozenset[str], resident: frozenset[str], wanted: int) -> None:
        """Ask for what waits where this machine has no open ask, and see to what waits for nobody."""
        try:
            waiting = await self._link.waiting(self._pool)
        except (nats.errors.Error, APIError, TimeoutError, OSError, ValueError) as error:
            log.info("cannot look at what waits, trying again", error=repr(error))
            return
        self._away = frozenset(source.model for source in waiting if source.lane != LANE)
        for source in waiting:
            # At home, too: with less room than sources the asks go round, and this one may not have its turn.
            if source.model not in servable or self._open(source):
                continue
            # One job at least, even beyond the room: the bound on how long a cold source can be kept waiting.
            free = max(1, min(wanted - self._awaited, self._max_ask_jobs))
            if source.model not in resident:
                # What waits here for a model to load takes the room of models that are there.
                free = min(free, COLD_JOBS - self._held(source.model))
            if free <= 0:
                continue
            await self._stream(source).ask(min(free, waiting[source]), COLD_EXPIRES_S, wait=False)
            # There may be more than fits now, and its home may have no room for it.
            self._look_due = self._now() + COURTESY_S
        for source in self._removed.to_empty(waiting, self._now()):
            await self._stream(source).ask(self._max_ask_jobs, COLD_EXPIRES_S, wait=False)
        for source in self._removed.to_delete(waiting, self._now()):
            if (stream := self._streams.pop(source, None)) is not None:
                await stream.close()
            await self._removed.delete(self._link, source)

    def _open(self, source: Source) -> int:
        stream = self._streams.get(source)
        return 0 if stream is None else stream.outstanding

    def _stream(self, source: Source) -> ConsumerPull:
        stream = self._streams.get(source)
        if stream is None:
            stream = self._streams[source] = ConsumerPull(self._link, source, self._deliver, self.wake)
        return stream

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
