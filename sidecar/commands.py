"""Commands of the control plane for the workers of this machine, answered when they took effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import nats.errors
import structlog
from nats.aio.msg import Msg

from fabric.connection import Connection
from sidecar.artifacts.cache import ArtifactCache
from sidecar.dispatch.crew import Crew
from sidecar.sockets.connection import WorkerConnection
from wire import codec, frames, subjects
from wire.errors import Code, ErrorInfo, ShoalError

log = structlog.get_logger(__name__)

ANSWER_TIMEOUT_S = 20.0
VERBS = ("drain", "resume", "pin", "unpin", "evict", "ensure")


class Commands:
    """Subscriber of ``command.<machine>``."""

    def __init__(
        self,
        connection: Connection,
        machine: str,
        crew: Crew,
        cache: ArtifactCache,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._connection = connection
        self._machine = machine
        self._crew = crew
        self._cache = cache
        self._spawn = spawn

    async def start(self) -> None:
        """Take commands."""
        await self._connection.subscribe(subjects.command(self._machine), cb=self._take)

    async def _take(self, msg: Msg) -> None:
        # A download or a load must not hold up the next command.
        self._spawn(self._answer(msg))

    async def _answer(self, msg: Msg) -> None:
        try:
            command = codec.decode(msg.data, frames.WorkerCommand)
            await self.execute(command)
        except codec.WireDecodeError as error:
            reply = frames.CommandReply(ok=False, error=ErrorInfo(Code.INVALID_REQUEST, f"No command: {error}"))
        except ShoalError as error:
            reply = frames.CommandReply(ok=False, error=error.info)
        else:
            log.info("command done", verb=command.verb, worker=command.worker, digest=command.digest)
            reply = frames.CommandReply(ok=True)
        if not msg.reply:
            return
        try:
            await self._connection.publish(msg.reply, codec.encode(reply))
        except (nats.errors.Error, OSError) as failure:
            log.warning("cannot answer a command", error=repr(failure))

    async def execute(self, command: frames.WorkerCommand) -> None:
        """Do what ``command`` says. Raises ``ShoalError`` with what stands against it."""
        if command.verb not in VERBS:
            raise ShoalError(
                Code.INVALID_REQUEST, f"{command.verb!r} is no command: use one of {', '.join(VERBS)}.", param="verb"
            )
        connection = self._crew.workers.get(command.worker)
        if connection is None:
            here = ", ".join(sorted(self._crew.workers)) or "none"
            raise ShoalError(
                Code.NOT_FOUND,
                f"Worker {command.worker} is not connected on {self._machine} (connected: {here}).",
                param="worker",
            )
        if command.verb in ("drain", "resume"):
            self._crew.drain(command.worker, resume=command.verb == "resume")
            return
        if command.digest is None:
            raise ShoalError(Code.INVALID_REQUEST, f"{command.verb} needs a digest.", param="digest")
        await self._with_digest(connection, command, command.digest)

    async def _with_digest(self, connection: WorkerConnection, command: frames.WorkerCommand, digest: str) -> None:
        if command.verb == "ensure":
            await self._ensure(connection, command, digest)
            return
        frame: frames.Evict | frames.Pin
        if command.verb == "evict":
            frame = frames.Evict(digest=digest)
        else:
            frame = frames.Pin(digest=digest, pinned=command.verb == "pin")
        _raise_error(await connection.request(frame, ANSWER_TIMEOUT_S))

    async def _ensure(self, connection: WorkerConnection, command: frames.WorkerCommand, digest: str) -> None:
        if command.model is None:
            raise ShoalError(Code.INVALID_REQUEST, "ensure needs the adapter's base model.", param="model")
        self._cache.hold(digest)
        try:
            path = await self._cache.ensure(digest)
            frame = frames.Ensure(model=command.model, digest=digest, path=str(path))
            _raise_error(await connection.request(frame, ANSWER_TIMEOUT_S))
        finally:
            self._cache.release(digest)


def _raise_error(ensured: frames.Ensured) -> None:
    if ensured.error is not None:
        raise ShoalError(ensured.error.code, ensured.error.message, hint=ensured.error.hint)
