"""One way to connect to NATS: reconnects for ever, bounds what it buffers, says what happens in the log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg

log = structlog.get_logger(__name__)

PENDING_BYTES = 8 * 1024 * 1024
RECONNECT_WAIT_S = 0.25
PING_INTERVAL_S = 5
MAX_OUTSTANDING_PINGS = 2

ReconnectCallback = Callable[[], Awaitable[None]]
DirectCallback = Callable[[str, bytes], None]


class Connection(Client):
    """A NATS client that several parts of a process can share: each may ask to be told of a reconnect."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self._told_on_reconnect: list[ReconnectCallback] = []
        self._logged_error = ""
        self._direct: dict[int, DirectCallback] = {}

    async def subscribe_direct(self, subject: str, callback: DirectCallback) -> None:
        """Call ``callback`` with subject and data of each message, in the turn of the loop in which it was read.

        For many small messages: nats-py's own way costs a queue, a task's turn and a message object for each. The
        callback must be quick; what it raises is logged.
        """
        subscription = await self.subscribe(subject, cb=_never)
        self._direct[subscription._id] = callback

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        callback = self._direct.get(sid)
        if callback is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        try:
            callback(subject.decode(), data)
        except Exception:
            # One message must not end the reading of all others.
            log.exception("message cannot be handled", client=self.name, subject=subject.decode())

    def on_reconnect(self, callback: ReconnectCallback) -> None:
        """Await ``callback`` after every reconnect, in the order of registration. It must not raise."""
        self._told_on_reconnect.append(callback)

    def forget_reconnect(self, callback: ReconnectCallback) -> None:
        """Take back what ``on_reconnect`` registered."""
        self._told_on_reconnect.remove(callback)

    async def _process_connect_init(self) -> None:
        try:
            await super()._process_connect_init()
        except BaseException:
            # nats-py forgets a connection whose handshake failed: a server that accepts and says nothing would cost
            # a socket each second.
            transport = self._transport
            if transport is not None:
                transport.close()  # type: ignore[no-untyped-call]
            raise

    async def log_disconnect(self) -> None:
        if self.is_closed:
            return
        log.warning("lost the connection to NATS, trying again until it is back", client=self.name)

    async def log_closed(self) -> None:
        log.debug("connection to NATS closed", client=self.name)

    async def tell_reconnect(self) -> None:
        self._logged_error = ""
        log.info("connected to NATS again", client=self.name, times=self.stats["reconnects"])
        for callback in list(self._told_on_reconnect):
            await callback()

    async def log_error(self, error: Exception) -> None:
        # A server that is down raises the same error four times a second; once says it.
        text = f"{type(error).__name__}: {error}"
        if text != self._logged_error:
            self._logged_error = text
            log.warning("NATS reports an error", client=self.name, error=text)


async def _never(_: Msg) -> None:
    raise AssertionError("messages of a direct subscription take another way")


async def connect(url: str, *, name: str) -> Connection:
    """A client connected to ``url`` (comma-separated: a cluster); waits until a server answers.

    While the server is away, publishes are buffered up to 8 MiB and refused above with
    ``OutboundBufferLimitError``. A peer that stops answering is noticed within 15 s.
    """
    client = Connection(name)
    try:
        await client.connect(
            servers=[part.strip() for part in url.split(",")],
            name=name,
            max_reconnect_attempts=-1,
            # nats-py declares int but only compares and sleeps.
            reconnect_time_wait=RECONNECT_WAIT_S,  # type: ignore[arg-type]
            ping_interval=PING_INTERVAL_S,
            max_outstanding_pings=MAX_OUTSTANDING_PINGS,
            pending_size=PENDING_BYTES,
            error_cb=client.log_error,
            disconnected_cb=client.log_disconnect,
            reconnected_cb=client.tell_reconnect,
            closed_cb=client.log_closed,
        )
    except BaseException:
        # Whoever gave up waiting has no client to close.
        await client.close()
        raise
    return client
