"""Raw pull requests to one consumer (see docs/adr: no ``fetch``).

``$JS.API.CONSUMER.MSG.NEXT.<stream>.<consumer>`` with a batch, an expiry and a heartbeat; messages and statuses come
to the inbox of the request. The sum of what is still owed is exact: a status that ends a request says how many
messages it leaves undelivered (``Nats-Pending-Messages``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import nats.errors
import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.errors import APIError

from fabric.topology import TopologyConflict
from sidecar import metrics
from sidecar.broker.link import Link, Source
from wire import codec
from wire.subjects import LANE, WORK_STREAM

log = structlog.get_logger(__name__)

GRACE_S = 1.0
BACKOFF_S = 0.5
MAX_OPEN_PULLS = 16


Deliver = Callable[[Msg, str], None]


@dataclass(slots=True)
class _Open:
    remaining: int
    ends: float
    heartbeat_s: float


class ConsumerPull:
    """Asks of one (pool, model, lane).

    ``deliver`` gets each message with its stream's incarnation; ``changed`` is called when asks ended or arrived.
    """

    def __init__(self, link: Link, source: Source, deliver: Deliver, changed: Callable[[], None]) -> None:
        self.source = source
        self.asked = 0.0
        self._link = link
        self._deliver = deliver
        self._changed = changed
        self._durable = ""
        self._stream = ""
        self._subscription: Subscription | None = None
        self._inbox = ""
        self._number = 0
        self._open: dict[str, _Open] = {}
        self._reconnects = 0
        self._heard = 0.0
        self._delivered = 0.0
        self._opened = 0.0
        self._quiet_until = 0.0
        self._preparing = asyncio.Lock()
        self.weight = 0.0

    @property
    def outstanding(self) -> int:
        """Messages asked for and not delivered yet."""
        return sum(one.remaining for one in self._open.values())

    async def ask(self, jobs: int, expires_s: float, *, wait: bool = True) -> None:
        """Open one more request for ``jobs`` messages; without ``wait`` for those alone that are there now.

        Failures are logged and tried again at the next ask.
        """
        now = self.asked = self._now()
        if jobs <= 0 or now < self._quiet_until or not self._link.ready or len(self._open) >= MAX_OPEN_PULLS:
            return
        try:
            await self._prepare()
            self._number += 1
            heartbeat_s = min(1.0, expires_s * 0.4)
            request: dict[str, int | bool] = {"batch": jobs, "no_wait": True}
            if wait:
                request = {"batch": jobs, "expires": int(expires_s * 1e9), "idle_heartbeat": int(heartbeat_s * 1e9)}
            key = str(self._number)
            if not self._open:
                self._opened = self._heard = now
            self._open[key] = _Open(jobs, now + expires_s, heartbeat_s)
            await self._link.connection.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{WORK_STREAM}.{self._durable}",
                codec.encode_json(request),
                reply=f"{self._inbox}.{key}",
            )
            metrics.PULLS_OPENED.inc()
        except (nats.errors.Error, APIError, TopologyConflict, TimeoutError, OSError) as error:
            self._quiet_until = self._now() + BACKOFF_S
            log.warning("cannot pull, trying again", source=self._name, error=repr(error))

    async def pending(self) -> int:
        """Messages of this consumer in the stream that were delivered to nobody; -1 when it cannot be asked."""
        try:
            await self._prepare()
            info = await self._link.js.consumer_info(WORK_STREAM, self._durable, timeout=2)
        except (nats.errors.Error, APIError, TopologyConflict, TimeoutError, OSError):
            return -1
        return int(info.num_pending or 0)

    async def check(self, stall_s: float) -> None:
        """Drop asks that died without a word; renew the inbox when messages wait and none comes for ``stall_s``."""
        now = self._now()
        if not self._link.ready or self._reconnects != self._link.connection.stats["reconnects"]:
            self._drop_all()
            return
        for key in [key for key, one in self._open.items() if now > one.ends + GRACE_S]:
            del self._open[key]
            self._changed()
        if not self._open:
            return
        silent_s = 2.5 * max(one.heartbeat_s for one in self._open.values())
        if now - max(self._heard, self._opened) > silent_s:
            await self._renew("no heartbeat")
        elif now - max(self._delivered, self._opened) > stall_s and await self.pending() > 0:
            await self._renew("pending but not delivered")

    async def close(self) -> None:
        """Take all asks back. Messages on their way are still delivered before this returns."""
        subscription, self._subscription = self._subscription, None
        self._open.clear()
        if subscription is not None:
            await _drain(subscription)

    async def _renew(self, reason: str) -> None:
        log.warning("deliveries stopped, asking anew from a fresh inbox", source=self._name, reason=reason,
                    asked=self.outstanding)  # fmt: skip
        metrics.PULLS_RENEWED.labels(reason=reason).inc()
        await self.close()
        self._changed()

    async def _prepare(self) -> None:
        # Open asks and a look may want it at once; two subscriptions would be one too many.
        async with self._preparing:
            await self._prepare_alone()

    async def _prepare_alone(self) -> None:
        reconnects = self._link.connection.stats["reconnects"]
        if self._stream != self._link.stream or reconnects != self._reconnects or not self._durable:
            stream = self._link.stream
            durable = await self._link.ensure_consumer(self.source)
            await self.close()
            self._durable, self._stream, self._reconnects = durable, stream, reconnects
        if self._subscription is None:
            # The incarnation travels with the inbox: what an old inbox still holds is never taken for new.
            self._inbox = self._link.connection.new_inbox()
            self._subscription = await self._link.connection.subscribe(
                f"{self._inbox}.*", cb=partial(self._take, self._stream)
            )
            self._open.clear()

    async def _take(self, stream: str, msg: Msg) -> None:
        self._heard = now = self._now()
        status = (msg.headers or {}).get("Status")
        if status is not None and not msg.reply.startswith("$JS.ACK."):
            self._take_status(msg, status)
            return
        self._delivered = now
        self.weight += 1.0
        for key, one in self._open.items():
            if one.remaining > 0:
                one.remaining -= 1
                if one.remaining == 0:
                    del self._open[key]
                break
        self._deliver(msg, stream)

    def _take_status(self, msg: Msg, status: str) -> None:
        if status == "100":
            return
        headers = msg.headers or {}
        description = headers.get("Description", "")
        self._end(msg.subject.rpartition(".")[2], int(headers.get("Nats-Pending-Messages", "-1")))
        lost = status == "503" or "Consumer Deleted" in description or "Consumer is push based" in description
        if lost:
            # The stream or the consumer is gone: look what is there, make it, ask again.
            self._durable = ""
            self._drop_all()
            self._link.doubt()
        if lost or status == "400" or "MaxWaiting" in description:
            self._quiet_until = self._now() + BACKOFF_S
            log.warning("pull refused, trying again", source=self._name, status=status, description=description)
        self._changed()

    def _end(self, key: str, pending: int) -> None:
        ended = self._open.pop(key, None)
        recorded = 0 if ended is None else ended.remaining
        if pending < 0 or not self._open:
            return
        # Deliveries are counted against the oldest request; the status tells what this one really still owed, and
        # what it owed more or less than recorded belongs to the others.
        surplus = pending - recorded
        for other, one in list(self._open.items()):
            taken = min(surplus, one.remaining)
            one.remaining -= taken
            surplus -= taken
            if one.remaining == 0:
                del self._open[other]

    def _drop_all(self) -> None:
        if self._open:
            self._open.clear()
            self._changed()

    @property
    def _name(self) -> str:
        return self.source.model if self.source.lane == LANE else f"{self.source.model} lane {self.source.lane}"

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


async def _drain(subscription: Subscription) -> None:
    try:
        async with asyncio.timeout(2):
            await subscription.drain()  # type: ignore[no-untyped-call]
    except (nats.errors.Error, TimeoutError, OSError) as error:
        log.info("inbox closed without a last look", error=repr(error))
