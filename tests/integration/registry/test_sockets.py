"""Live sockets: a feed of one's own teams, and rights that are looked at again while the socket is open."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore

from controlplane.accounts.members import add_member, remove_member
from controlplane.accounts.models import Team
from controlplane.accounts.services import create_team_for
from controlplane.events import consumers as feeds
from controlplane.events.services import record_event
from loras import consumers as adapters
from loras.models import Adapter

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def quick(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rights are looked at every 0.2 s; nothing leaves this process."""
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    for module in (feeds, adapters):
        monkeypatch.setattr(module, "RIGHTS_CHECKED_EVERY_S", 0.2)


@sync_to_async
def make_person(name: str, team: str = "") -> tuple[User, SessionStore]:
    user = User.objects.create_user(name)
    if team:
        create_team_for(user=user, name=team)
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    return user, session


class Socket:
    """One socket of a signed-in person, without a server."""

    def __init__(self, consumer: Any, user: User, session: SessionStore, **names: str) -> None:
        scope = {"type": "websocket", "path": "/ws/", "user": user, "session": session}
        communicator: Any = ApplicationCommunicator
        self.app = communicator(consumer.as_asgi(), scope | {"url_route": {"kwargs": names}})

    async def open(self) -> None:
        await self.app.send_input({"type": "websocket.connect"})
        assert (await self.app.receive_output(5))["type"] == "websocket.accept"

    async def message(self) -> Any:
        return msgspec.json.decode((await self.app.receive_output(5))["text"])

    async def closed_with(self) -> int:
        while True:
            found = await self.app.receive_output(10)
            if found["type"] == "websocket.close":
                return int(found["code"])


async def test_a_feed_hears_of_its_own_teams_and_follows_them(quick: None) -> None:
    ada, session = await make_person("ada", "acme")
    await make_person("eve", "rivals")
    socket = Socket(feeds.EventsConsumer, ada, session)
    await socket.open()
    assert (await socket.message())["type"] == "snapshot"
    acme, rivals = [await Team.objects.aget(name=name) for name in ("acme", "rivals")]
    note = sync_to_async(record_event)
    await note(kind="test.theirs", subject="x", message="x", team=rivals)
    await note(kind="test.ours", subject="x", message="x", team=acme)
    # a burst is one message
    await note(kind="test.ours", subject="x", message="x", team=acme)
    assert await socket.message() == {"type": "event", "kind": "test.ours"}
    assert await socket.app.receive_nothing(0.6)
    # a new team is followed without a new socket
    await sync_to_async(add_member)(team=rivals, username="ada", role="viewer")
    for _ in range(50):
        await note(kind="test.theirs", subject="x", message="x", team=rivals)
        if not await socket.app.receive_nothing(0.1):
            break
    assert (await socket.message())["kind"] in {"test.theirs", "member.added"}
    await sync_to_async(session.delete)()
    assert await socket.closed_with() == feeds.UNAUTHENTICATED


async def test_who_left_the_team_is_shown_out(quick: None) -> None:
    ada, _ = await make_person("ada", "acme")
    max_, session = await make_person("max")
    acme = await Team.objects.aget(name="acme")
    await Adapter.objects.acreate(team=acme, name="search", created_by=ada)
    await sync_to_async(add_member)(team=acme, username="max", role="viewer")
    socket = Socket(adapters.AdapterConsumer, max_, session, team="acme", name="search")
    await socket.open()
    assert (await socket.message())["type"] == "snapshot"
    await sync_to_async(remove_member)(team=acme, username="max")
    assert await socket.closed_with() == adapters.NOT_FOUND


@pytest.mark.parametrize("consumer", [feeds.EventsConsumer, adapters.AdapterConsumer])
async def test_strangers_learn_nothing(quick: None, consumer: Any) -> None:
    await make_person("ada", "acme")
    eve, session = await make_person("eve", "rivals")
    acme = await Team.objects.aget(name="acme")
    await Adapter.objects.acreate(team=acme, name="search")
    await sync_to_async(session.delete)()
    socket = Socket(consumer, eve, session, team="acme", name="search")
    await socket.open()
    assert await socket.closed_with() in {feeds.UNAUTHENTICATED, adapters.NOT_FOUND}
