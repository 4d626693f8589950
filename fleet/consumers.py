"""``/ws/fleet/``: a snapshot, then what changes. The messages are described in ``fleet.payloads``."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import structlog
from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from redis.exceptions import RedisError

from fleet import payloads
from fleet.mailbox import Mailbox
from fleet.naming import name_book
from fleet.rendering import digests_of, render_snapshot, render_worker
from fleet.telemetry.bridge import GROUP
from fleet.telemetry.reader import live_reader
from fleet.telemetry.states import Update, WorkerState
from fleet.viewers import Viewer, find_socket_viewer
from wire.codec import decode, encode_json

NOT_SIGNED_IN = 4401
TRY_AGAIN_LATER = 1013
SEND_EVERY_S = 0.2
HEARTBEAT_S = 2.0
STUCK_AFTER_S = 60.0
SIGN_IN_CHECKED_EVERY_S = 60.0

log = structlog.get_logger(__name__)


class FleetConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]  # channels has no types
    """Updates go into a mailbox at once and a task of its own sends them, so a slow client delays nobody."""

    groups: list[str] = []

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._mailbox = Mailbox()
        self._viewer: Viewer | None = None
        self._sender: asyncio.Task[None] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        # the channel layer's Redis went away: one line, and the browser comes back with its own back-off
        except (RedisError, OSError) as error:
            log.warning("live socket ended", error=f"{type(error).__name__}: {error}")
            with contextlib.suppress(Exception):
                await self.close(code=TRY_AGAIN_LATER)
        finally:
            if self._sender is not None:
                self._sender.cancel()

    async def connect(self) -> None:
        # a close code reaches a browser only after the handshake
        await self.accept()
        self._viewer = await database_sync_to_async(find_socket_viewer)(self.scope)
        if self._viewer is None:
            await self.close(code=NOT_SIGNED_IN)
            return
        # joined before the snapshot is read: what changes meanwhile waits in the mailbox
        await self.channel_layer.group_add(GROUP, self.channel_name)
        self._sender = asyncio.create_task(self._send_all())

    async def disconnect(self, code: int) -> None:
        if self._sender is not None:
            self._sender.cancel()
        with contextlib.suppress(RedisError, OSError):
            await self.channel_layer.group_discard(GROUP, self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Nothing is asked of the server over this socket; whatever comes is left unread."""

    async def fleet_update(self, event: dict[str, Any]) -> None:
        """The bridge's message of the second."""
        self._mailbox.put(decode(event["body"], Update))

    async def _send_all(self) -> None:
        try:
            await self._send_snapshot()
            next_check = time.monotonic() + SIGN_IN_CHECKED_EVERY_S
            while True:
                await self._send_next()
                if time.monotonic() >= next_check:
                    next_check = time.monotonic() + SIGN_IN_CHECKED_EVERY_S
                    self._viewer = await database_sync_to_async(find_socket_viewer)(self.scope)
                    if self._viewer is None:
                        await self.close(code=NOT_SIGNED_IN)
                        return
        except TimeoutError:
            log.info("live socket closed: its client took nothing", seconds=STUCK_AFTER_S)
            await self._give_up()
        # the edge of this task: without it a defect would leave an open socket that says nothing
        except Exception:
            log.exception("live socket closed: its messages cannot be made")
            await self._give_up()

    async def _send_snapshot(self) -> None:
        view = await sync_to_async(live_reader().read, thread_sensitive=False)()
        await self._learn(view.states)
        await self._send_message(render_snapshot(view, at=time.time(), names=name_book(), teams=self._teams))

    async def _send_next(self) -> None:
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await self._mailbox.wait()
        except TimeoutError:
            await self._send_message(payloads.Heartbeat(at=time.time()))
            return
        states = self._mailbox.take()
        await self._learn(states)
        workers = [render_worker(state, names=name_book(), teams=self._teams) for state in states]
        await self._send_message(payloads.Delta(at=time.time(), workers=workers))
        await asyncio.sleep(SEND_EVERY_S)

    async def _learn(self, states: list[WorkerState]) -> None:
        missing = name_book().missing(digests_of(states))
        if missing:
            await database_sync_to_async(name_book().learn)(missing)

    @property
    def _teams(self) -> frozenset[str]:
        return self._viewer.teams if self._viewer is not None else frozenset()

    async def _send_message(self, message: payloads.Message) -> None:
        async with asyncio.timeout(STUCK_AFTER_S):
            await self.send(text_data=encode_json(message).decode())

    async def _give_up(self) -> None:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(1):
                await self.close(code=TRY_AGAIN_LATER)
