"""The connection to the sidecar: kept up with back-off, read by one thread."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import structlog

from wire.codec import WireDecodeError
from wire.frames import (
    Batch,
    Cancel,
    Drain,
    Ensure,
    Evict,
    Hello,
    Models,
    Pin,
    Refused,
    SidecarFrame,
)
from workers.channel import Channel, ChannelClosed
from workers.engine.answers import Answers
from workers.engine.outbox import Outbox
from workers.engine.pipes import Pipes
from workers.engine.shelf import Shelf
from workers.engine.works import WaitingRoom, Work

log = structlog.get_logger("worker.link")
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0


class Link:
    """Connects, says hello, and hands each frame to the stage it is for."""

    def __init__(
        self,
        path: Path,
        hello: Hello,
        room: WaitingRoom,
        shelf: Shelf,
        pipes: Pipes,
        answers: Answers,
        outbox: Outbox,
    ) -> None:
        self._path = path
        self._hello = hello
        self._room = room
        self._shelf = shelf
        self._pipes = pipes
        self._answers = answers
        self._outbox = outbox
        self._stopping = threading.Event()

    def run(self) -> None:
        """Serve one connection after another until :meth:`stop`."""
        pause_s = _FIRST_PAUSE_S
        told = False
        while not self._stopping.is_set():
            try:
                channel = Channel.connect(self._path)
                self._answers.connected(channel, self._hello)
            except OSError as error:
                if not told:
                    log.warning("no sidecar yet, trying on", socket=str(self._path), reason=str(error))
                    told = True
                self._stopping.wait(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads retries, no secret
                pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)
                continue
            log.info("connected to the sidecar", socket=str(self._path))
            told = False
            if self._serve(channel):
                pause_s = _FIRST_PAUSE_S
            else:
                self._stopping.wait(_LONGEST_PAUSE_S)

    def stop(self) -> None:
        """Make no further connection."""
        self._stopping.set()

    def _serve(self, channel: Channel) -> bool:
        """Read until the connection ends; false when the sidecar refused it, which a quick retry would not change."""
        try:
            while True:
                frame = channel.receive()
                if isinstance(frame, Refused):
                    log.error("the sidecar refused this worker", reason=frame.reason)
                    return False
                self._take(frame)
        except (ChannelClosed, WireDecodeError) as error:
            if not self._stopping.is_set():
                log.warning("sidecar lost, unfinished jobs went back to its queue", reason=str(error))
            return True
        finally:
            self._outbox.detach()
            self._room.reset()

    def _take(self, frame: SidecarFrame) -> None:
        match frame:
            case Batch(jobs=jobs, artifacts=artifacts):
                for job in jobs:
                    work = Work(job, artifacts.get(job.adapter_digest or job.model_digest))
                    if self._room.admit(work):
                        self._pipes.to_prepare(work)
            case Cancel(jobs=ids):
                self._room.cancel(ids)
                self._answers.offer_room()
            case Models(models=records):
                for record in self._shelf.set_records(records):
                    self._pipes.models.put(record)
                self._answers.offer_room()
            case Ensure():
                self._pipes.adapters.put(frame)
            case Evict() | Pin():
                self._pipes.device.put(frame)
                self._room.nudge()
            case Drain(resume=resume):
                self._room.set_draining(not resume)
                self._answers.offer_room()
            case Refused():
                raise ChannelClosed(frame.reason)
