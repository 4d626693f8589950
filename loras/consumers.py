"""``/ws/adapters/{team}/{name}/``: state and report of an adapter's versions, live."""

from __future__ import annotations

import asyncio
from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer

from controlplane.accounts.sessions import session_user
from loras.live import Snapshot, adapter_group, snapshot_for
from wire.codec import encode_json

NOT_FOUND = 4404
UNAUTHENTICATED = 4401
RIGHTS_CHECKED_EVERY_S = 60.0


class AdapterConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]  # channels has no types
    """Sends a ``snapshot`` on connect and a ``version`` or ``aliases`` message with each change."""

    group = ""
    checking: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        user = self.scope.get("user")
        if user is None or not user.is_authenticated:
            await self._refuse(UNAUTHENTICATED)
            return
        names = self.scope["url_route"]["kwargs"]
        # joined before the snapshot is read: a change in between is sent twice rather than never
        adapter_id = await database_sync_to_async(_adapter_id)(user, names["team"], names["name"])
        if adapter_id is None:
            await self._refuse(NOT_FOUND)
            return
        self.group = adapter_group(adapter_id)
        await self.channel_layer.group_add(self.group, self.channel_name)
        await self.accept()
        snapshot: Snapshot = await database_sync_to_async(snapshot_for)(adapter_id)
        await self.send(text_data=encode_json(snapshot).decode())
        self.checking = asyncio.create_task(self._check(names["team"], names["name"]))

    async def disconnect(self, code: int) -> None:
        if self.checking is not None:
            self.checking.cancel()
        if self.group:
            await self.channel_layer.group_discard(self.group, self.channel_name)

    async def adapter_changed(self, event: dict[str, Any]) -> None:
        """A message published by ``loras.live``, JSON already."""
        await self.send(text_data=event["text"])

    async def _check(self, team: str, name: str) -> None:
        """A socket lives for days: who left the team, signed out, or looks at what was deleted, is shown out."""
        while True:
            await asyncio.sleep(RIGHTS_CHECKED_EVERY_S)
            user = await database_sync_to_async(session_user)(self.scope)
            if user is None:
                await self.close(UNAUTHENTICATED)
                return
            if await database_sync_to_async(_adapter_id)(user, team, name) is None:
                await self.close(NOT_FOUND)
                return

    async def _refuse(self, code: int) -> None:
        # accepted first: a browser learns the close code of an accepted socket only
        await self.accept()
        await self.close(code)


def _adapter_id(user: Any, team: str, name: str) -> int | None:
    from controlplane.accounts.principal import principal_of_user
    from loras.models import Adapter

    own = principal_of_user(user).team_ids
    return Adapter.objects.filter(team__name=team, name=name, team_id__in=own).values_list("pk", flat=True).first()
