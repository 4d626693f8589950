"""In-memory copy of a KV bucket, kept up to date by an ordered push consumer that is rebuilt at any doubt.

One *pass* reads the last value of every key and follows the changes after it. A pass ends, and the next
begins with all keys read again, when a consumer sequence is missing, when heartbeats stop (server restarted,
consumer or bucket deleted) or after a reconnect. So no update is lost for longer than the heartbeat time-out.
While a bucket is away the last known records stay: the data plane goes on with what it knows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

import nats.errors
import structlog
from nats.aio.msg import Msg
from nats.js import api
from nats.js.errors import APIError, NotFoundError

from fabric.connection import Connection
from fabric.tasks import end_task
from wire import codec
from wire.subjects import decode_token

log = structlog.get_logger(__name__)

HEARTBEAT_S = 1.0
SILENCE_S = 3.0
RETRY_S = 0.3
ANSWER_S = 2.0
INACTIVE_S = 10.0

T = TypeVar("T")
ChangeCallback = Callable[[str, T | None], None]


class Mirror(Generic[T]):
    """Copy of ``bucket`` whose values are MessagePack of ``kind``; ``records`` is keyed by decoded name.

    ``records`` is one dict for life, changed only between awaits: readers on the loop see whole states.
    """

    def __init__(self, connection: Connection, bucket: str, kind: type[T]) -> None:
        self.bucket = bucket
        self.records: dict[str, T] = {}
        self._connection = connection
        self._kind = kind
        self._ready = asyncio.Event()
        self._callbacks: list[ChangeCallback[T]] = []
        self._task: asyncio.Task[None] | None = None
        self._pass: _Pass[T] | None = None
        self._absence_logged = False

    @property
    def ready(self) -> bool:
        """Whether all keys have been read at least once."""
        return self._ready.is_set()

    @property
    def following(self) -> bool:
        """Whether changes arrive right now; ``False`` while the server or the bucket is away."""
        return self._pass is not None and self._pass.complete and not self._pass.over.is_set()

    def on_change(self, callback: ChangeCallback[T]) -> None:
        """Call ``callback(name, record or None)`` for each record that is new, changed or gone."""
        self._callbacks.append(callback)

    async def start(self) -> None:
        """Begin to follow the bucket; returns at once, see ``wait_ready``."""
        if self._task is not None:
            raise RuntimeError(f"mirror of {self.bucket} was started twice")
        self._connection.on_reconnect(self._end_pass)
        self._task = asyncio.create_task(self._run(), name=f"mirror {self.bucket}")

    async def stop(self) -> None:
        """Stop following; the records stay as they are."""
        if self._task is None:
            return
        self._connection.forget_reconnect(self._end_pass)
        await end_task(self._task)
        self._task = None

    async def wait_ready(self, timeout_s: float) -> None:
        """Return once all keys were read; raises ``TimeoutError`` naming the bucket."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        except TimeoutError:
            raise TimeoutError(
                f"bucket {self.bucket} could not be read within {timeout_s} s; "
                "the control plane makes it when it starts"
            ) from None

    async def _end_pass(self) -> None:
        if self._pass is not None:
            self._pass.over.set()

    async def _run(self) -> None:
        while True:
            try:
                await self._follow()
            except NotFoundError:
                if not self._absence_logged:
                    self._absence_logged = True
                    log.warning("bucket does not exist yet, waiting for it", bucket=self.bucket)
            except (APIError, nats.errors.Error, TimeoutError, OSError) as error:
                log.warning(
                    "cannot follow a bucket, trying again",
                    bucket=self.bucket,
                    error=str(error) or repr(error),
                )
            await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        this = self._pass = _Pass(self, self._connection)
        inbox = self._connection.new_inbox()
        subscription = await self._connection.subscribe(inbox, cb=this.take)
        try:
            info = await self._connection.jetstream(timeout=ANSWER_S).add_consumer(
                f"KV_{self.bucket}",
                api.ConsumerConfig(
                    deliver_subject=inbox,
                    filter_subject=f"$KV.{self.bucket}.>",
                    deliver_policy=api.DeliverPolicy.LAST_PER_SUBJECT,
                    ack_policy=api.AckPolicy.NONE,
                    max_deliver=1,
                    idle_heartbeat=HEARTBEAT_S,
                    flow_control=True,
                    inactive_threshold=INACTIVE_S,
                    mem_storage=True,
                    num_replicas=1,
                ),
            )
            self._absence_logged = False
            delivered = info.delivered.consumer_seq if info.delivered is not None else 0
            if not info.num_pending and not delivered and not this.complete:
                this.finish_reading()
            await this.wait_over()
        finally:
            this.over.set()
            with suppress(nats.errors.Error):
                await subscription.unsubscribe()

    def replace(self, fresh: dict[str, T]) -> None:
        """Make ``fresh`` the whole content and tell what differs."""
        before = dict(self.records)
        self.records.clear()
        self.records.update(fresh)
        self._ready.set()
        for name in before.keys() - fresh.keys():
            self._tell(name, None)
        for name, record in fresh.items():
            if before.get(name) != record:
                self._tell(name, record)

    def apply(self, name: str, record: T | None) -> None:
        """Take over one change."""
        if record is None:
            if self.records.pop(name, None) is None:
                return
        else:
            self.records[name] = record
        self._tell(name, record)

    def read(self, name: str, msg: Msg) -> T | None:
        """The record in ``msg``, or ``None`` for a deletion or for bytes that are no record (logged)."""
        headers = msg.headers or {}
        if headers.get("KV-Operation") in ("DEL", "PURGE") or "Nats-Marker-Reason" in headers:
            return None
        try:
            return codec.decode(msg.data, self._kind)
        except codec.WireDecodeError as error:
            # Acting on the older value could honour a key or a version that was just taken back.
            log.warning("record unreadable, treated as absent", bucket=self.bucket, name=name, error=str(error))
            return None

    def _tell(self, name: str, record: T | None) -> None:
        for callback in self._callbacks:
            callback(name, record)


class _Pass(Generic[T]):
    """One reading of all keys and the changes after it, over when in doubt."""

    def __init__(self, mirror: Mirror[T], connection: Connection) -> None:
        self.complete = False
        self.over = asyncio.Event()
        self._mirror = mirror
        self._connection = connection
        self._prefix_chars = len(f"$KV.{mirror.bucket}.")
        self._fresh: dict[str, T] = {}
        self._sequence = 0
        self._heard = time.monotonic()

    async def take(self, msg: Msg) -> None:
        if self.over.is_set():
            return
        self._heard = time.monotonic()
        headers = msg.headers or {}
        if headers.get("Status") == "100":
            await self._take_control(msg, headers)
            return
        metadata = msg.metadata
        if metadata.sequence.consumer != self._sequence + 1:
            self.over.set()
            return
        self._sequence += 1
        name = decode_token(msg.subject[self._prefix_chars :])
        record = self._mirror.read(name, msg)
        if self.complete:
            self._mirror.apply(name, record)
            return
        if record is not None:
            self._fresh[name] = record
        if metadata.num_pending == 0:
            self.finish_reading()

    def finish_reading(self) -> None:
        self.complete = True
        self._mirror.replace(self._fresh)
        self._fresh = {}

    async def wait_over(self) -> None:
        while time.monotonic() - self._heard < SILENCE_S:
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    await self.over.wait()
                return

    async def _take_control(self, msg: Msg, headers: dict[str, str]) -> None:
        stalled = headers.get("Nats-Consumer-Stalled")
        if stalled:
            await self._connection.publish(stalled)
        elif msg.reply:
            await self._connection.publish(msg.reply)
        last = headers.get("Nats-Last-Consumer")
        if last is not None and int(last) != self._sequence:
            self.over.set()
