"""The KV buckets follow the database, whatever the order and whoever is away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.contrib.auth.models import User

from controlplane.accounts.services import create_team_for, issue_api_key, revoke_api_key
from controlplane.events.buckets import BucketsAway
from controlplane.events.models import Outbox
from controlplane.events.registry import drain_outbox_rows, reconcile_all
from fabric.connection import connect
from fabric.kv import list_names, put_record
from fabric.topology import QueueSettings, ensure_buckets
from tests.servers import ServerProcess
from wire.registry import KeyRecord, Scope
from wire.subjects import ADAPTERS_BUCKET, KEYS_BUCKET, PAYLOAD_BUCKET

pytestmark = pytest.mark.django_db


@pytest.fixture
def here(nats_url: str, settings: Any) -> str:
    """The control plane of this process talks to this test's NATS."""
    settings.SHOAL = settings.SHOAL.model_copy(update={"nats_url": nats_url})
    return nats_url


def names(url: str, bucket: str = KEYS_BUCKET) -> list[str]:
    async def read() -> list[str]:
        connection = await connect(url, name="test")
        try:
            return await list_names(connection.jetstream(), bucket)
        finally:
            await connection.close()

    return asyncio.run(read())


def test_rows_drained_twice_or_late_end_in_the_same_state(here: str) -> None:
    team = create_team_for(user=User.objects.create_user("ada"))
    first = issue_api_key(team=team, name="first", scopes=[Scope.INFER]).key
    second = issue_api_key(team=team, name="second", scopes=[Scope.READ]).key
    old = list(Outbox.objects.values("bucket", "key"))
    assert drain_outbox_rows().written == 2
    assert not Outbox.objects.exists()
    assert names(here) == sorted([first.sha256, second.sha256])

    revoke_api_key(key=first)
    assert drain_outbox_rows().written == 1
    assert names(here) == [second.sha256]
    # rows of before the revocation come once more, out of order
    Outbox.objects.bulk_create(Outbox(**row) for row in reversed(old))
    drain_outbox_rows()
    assert names(here) == [second.sha256]
    repairs = reconcile_all()
    assert (repairs.rewritten, repairs.removed) == ([], [])


def test_buckets_keep_the_settings_that_gateways_give_them(here: str, settings: Any) -> None:
    wanted = {"queue_max_bytes": 8 * 1024**2, "queue_max_messages": 50, "queue_storage": "file"}
    settings.SHOAL = settings.SHOAL.model_copy(update=wanted)

    async def payload_bytes() -> int | None:
        connection = await connect(here, name="test")
        js = connection.jetstream()
        try:
            return (await js.stream_info(f"OBJ_{PAYLOAD_BUCKET}")).config.max_bytes
        finally:
            await connection.close()

    async def as_a_gateway() -> None:
        connection = await connect(here, name="test")
        await ensure_buckets(connection.jetstream(), QueueSettings(50, 8 * 1024**2, "file"))
        await connection.close()

    asyncio.run(as_a_gateway())
    reconcile_all()
    assert asyncio.run(payload_bytes()) == 8 * 1024**2


def test_buckets_lost_or_wrong_are_repaired(here: str, nats: ServerProcess) -> None:
    team = create_team_for(user=User.objects.create_user("ada"))
    key = issue_api_key(team=team, name="key", scopes=[Scope.INFER]).key
    drain_outbox_rows()

    async def disturb() -> None:
        connection = await connect(here, name="test")
        js = connection.jetstream()
        await js.delete_key_value(KEYS_BUCKET)
        await ensure_buckets(js, QueueSettings())
        stranger = KeyRecord(id="x", team="nobody", scopes=[Scope.INFER])
        await put_record(js, KEYS_BUCKET, "0" * 64, stranger)
        await (await js.key_value(ADAPTERS_BUCKET)).put("not=20an=20adapter", b"\x00garbage")
        await connection.close()

    asyncio.run(disturb())
    repairs = reconcile_all()
    assert repairs.rewritten == [f"{KEYS_BUCKET}/{key.sha256}"]
    assert set(repairs.removed) == {f"{KEYS_BUCKET}/{'0' * 64}", f"{ADAPTERS_BUCKET}/not an adapter"}
    assert names(here) == [key.sha256]
    assert names(here, ADAPTERS_BUCKET) == []


def test_nats_away_keeps_rows_and_backs_off(here: str, nats: ServerProcess) -> None:
    team = create_team_for(user=User.objects.create_user("ada"))
    key = issue_api_key(team=team, name="key", scopes=[Scope.INFER]).key
    nats.stop()
    drained = drain_outbox_rows()
    assert (drained.written, drained.waiting) == (0, 1)
    row = Outbox.objects.get()
    assert row.attempts == 1
    assert row.not_before is not None
    assert row.last_error
    # not due: nothing is even tried
    assert drain_outbox_rows().waiting == 0
    assert Outbox.objects.get().attempts == 1
    with pytest.raises(BucketsAway):
        reconcile_all()
    nats.start()
    Outbox.objects.update(not_before=None)
    assert drain_outbox_rows().written == 1
    assert names(here) == [key.sha256]
