"""``/ws/events/``: one small message with each event of the viewer's teams; the page then loads itself again."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from redis.exceptions import RedisError

from controlplane.events.publishing import OPERATORS, team_group
from wire.codec import encode_json

UNAUTHENTICATED = 4401
# a burst of events is one message
SETTLE_S = 0.3
RIGHTS_CHECKED_EVERY_S = 60.0


class EventsConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]  # channels has no types
    """Joins the groups of the teams that the session's person belongs to, and looks again every minute."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._joined: set[str] = set()
        self._waiting: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        # accepted first: a browser learns the close code of an accepted socket only
        await self.accept()
        if not await self._join():
            await self.close(UNAUTHENTICATED)
            return
        self._checking = asyncio.create_task(self._check())
        await self.send(text_data=encode_json({"type": "snapshot"}).decode())

    async def disconnect(self, code: int) -> None:
        for task in (self._waiting, self._checking):
            if task is not None:
                task.cancel()
        for group in self._joined:
            with contextlib.suppress(RedisError, OSError):
                await self.channel_layer.group_discard(group, self.channel_name)

    async def event_recorded(self, event: dict[str, Any]) -> None:
        """Something happened in one of the groups."""
        if self._waiting is None or self._waiting.done():
            self._waiting = asyncio.create_task(self._tell(event["kind"]))

    async def _tell(self, kind: str) -> None:
        await asyncio.sleep(SETTLE_S)
        await self.send(text_data=encode_json({"type": "event", "kind": kind}).decode())

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(RIGHTS_CHECKED_EVERY_S)
            if not await self._join():
                await self.close(UNAUTHENTICATED)
                return

    async def _join(self) -> bool:
        """Join and leave as the person's teams say; ``False`` for nobody."""
        wanted: set[str] | None = await database_sync_to_async(_groups_of)(self.scope)
        if wanted is None:
            return False
        for group in wanted - self._joined:
            await self.channel_layer.group_add(group, self.channel_name)
        for group in self._joined - wanted:
            await self.channel_layer.group_discard(group, self.channel_name)
        self._joined = wanted
        return True


def _groups_of(scope: Any) -> set[str] | None:
    from controlplane.accounts.principal import principal_of_user
    from controlplane.accounts.sessions import session_user

    user = session_user(scope)
    if user is None:
        return None
    principal = principal_of_user(user)
    return {team_group(team) for team in principal.team_ids} | ({OPERATORS} if principal.operator else set())
