"""Frames on their way to the sidecar: one writer thread, and nothing of an old connection on a new one."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass

from wire.frames import Hello, WorkerFrame
from workers.channel import Channel, ChannelClosed

_CAPACITY = 4096


@dataclass(frozen=True, slots=True)
class _Posted:
    connection: int
    frame: WorkerFrame


class Outbox:
    """Bounded queue in front of the socket. Frames posted while no sidecar is there are dropped: they are stale."""

    def __init__(self) -> None:
        self._queue: queue.Queue[_Posted | None] = queue.Queue(_CAPACITY)
        self._lock = threading.Lock()
        self._channel: Channel | None = None
        self._connection = 0

    def attach(self, channel: Channel, hello: Hello) -> None:
        """A new connection: ``hello`` is its first frame, and frames posted before are not for it."""
        channel.send(hello)
        with self._lock:
            self._channel = channel
            self._connection += 1

    def detach(self) -> None:
        """The connection is lost."""
        with self._lock:
            if self._channel is not None:
                self._channel.close()
            self._channel = None

    @property
    def connected(self) -> bool:
        """Whether a sidecar is there."""
        return self._channel is not None

    def post(self, frame: WorkerFrame | None) -> None:
        """Queue ``frame`` for the present connection; ``None`` posts nothing."""
        with self._lock:
            if frame is None or self._channel is None:
                return
            posted = _Posted(self._connection, frame)
        self._queue.put(posted)

    def close(self) -> None:
        """Let :meth:`run` end once everything posted was sent."""
        self._queue.put(None)

    def run(self) -> None:
        """Send until :meth:`close`."""
        while (posted := self._queue.get()) is not None:
            with self._lock:
                channel = self._channel if posted.connection == self._connection else None
            if channel is None:
                continue
            try:
                channel.send(posted.frame)
            except ChannelClosed:
                channel.close()  # the reader notices and connects again
