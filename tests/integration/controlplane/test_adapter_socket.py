"""``/ws/adapters/…``: a snapshot on connect, each change after it, and nothing for strangers."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.integration.controlplane.adapters import lora_files, multipart
from tests.integration.controlplane.site import Site

pytestmark = pytest.mark.timeout(300)

SIGN_IN = (
    "from django.contrib.auth import SESSION_KEY, BACKEND_SESSION_KEY, HASH_SESSION_KEY\n"
    "from django.contrib.auth.models import User\n"
    "from django.contrib.sessions.backends.db import SessionStore\n"
    "user, _ = User.objects.get_or_create(username={name!r})\n"
    "session = SessionStore()\n"
    "session[SESSION_KEY] = str(user.pk)\n"
    "session[BACKEND_SESSION_KEY] = 'django.contrib.auth.backends.ModelBackend'\n"
    "session[HASH_SESSION_KEY] = user.get_session_auth_hash()\n"
    "session.save()\n"
    "print(json.dumps(session.session_key))"
)


def socket_of(site: Site, adapter: str, session: str = "") -> Any:
    headers = {"Cookie": f"sessionid={session}", "Origin": site.url}
    return connect(f"ws://127.0.0.1:{site.web_port}/ws/adapters/{adapter}/", additional_headers=headers)


async def message(socket: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(90):
        found: dict[str, Any] = msgspec.json.decode(await socket.recv())
    return found


async def test_snapshot_then_changes(site: Site) -> None:
    session = site.python(SIGN_IN.format(name="admin"))
    with site.api() as api:
        api.post("adapters/", data={"name": "admin/watched"}, files=multipart(lora_files(601, rank=2)))
        async with socket_of(site, "admin/watched", session) as socket:
            snapshot = await message(socket)
            assert snapshot["type"] == "snapshot"
            assert snapshot["name"] == "admin/watched"
            assert [version["number"] for version in snapshot["versions"]] == [1]
            truncated = {name: data[:-3] for name, data in lora_files(602, rank=2).items()}
            await asyncio.to_thread(api.post, "adapters/", data={"name": "admin/watched"}, files=multipart(truncated))
            seen: list[tuple[int, str]] = []
            while (2, "rejected") not in seen:
                update = await message(socket)
                if update["type"] == "version":
                    seen.append((update["number"], update["state"]))
                    last = update
            assert (2, "validating") in seen
            assert last["report"]["rows"]


@pytest.mark.parametrize(("name", "code"), [("", 4401), ("stranger", 4404)])
async def test_strangers_are_told_nothing(site: Site, name: str, code: int) -> None:
    session = site.python(SIGN_IN.format(name=name)) if name else ""
    async with socket_of(site, "admin/watched", session) as socket:
        with pytest.raises(ConnectionClosed) as closed:
            await message(socket)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == code
