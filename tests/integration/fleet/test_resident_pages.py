"""Pin and evict from the worker's page: what it would do is said first, and only staff may."""

from __future__ import annotations

import time

import msgspec
import pytest
import redis
from django.contrib.auth.models import User
from django.test import Client

from fleet.telemetry import keys
from fleet.telemetry.reader import live_reader
from fleet.telemetry.states import WorkerState
from tests.integration.fleet.test_rest import make_state
from wire.codec import encode
from wire.telemetry import Eviction

pytestmark = pytest.mark.django_db


def put(url: str, *states: WorkerState) -> None:
    with redis.Redis.from_url(url) as client:
        for state in states:
            client.hset(keys.states(), state.key, encode(state))
    live_reader.cache_clear()


def page(client: Client, address: str, status: int = 200) -> str:
    answer = client.get(address)
    assert answer.status_code == status
    return answer.content.decode()


def test_what_an_eviction_would_do_is_said_before(live: str) -> None:
    gone = Eviction("adapter", "d" * 64, "Least used when room was needed.", time.time())
    put(live, msgspec.structs.replace(make_state("cpu"), evicted=[gone]), make_state("gpu"))
    staff, other = Client(), Client()
    staff.force_login(User.objects.create_user("staff", is_staff=True))
    other.force_login(User.objects.create_user("other"))
    shown = page(staff, "/fleet/box.cpu/")
    assert "Keep or free" in shown
    assert "Least used when room was needed." in shown
    assert "Least used when room was needed." in page(other, "/fleet/")
    assert "Keep or free" not in page(other, "/fleet/box.cpu/")

    address = f"/fleet/box.cpu/residents/{'a' * 64}"
    asked = page(staff, f"{address}/evict/")
    assert "Also resident on box/gpu" in asked
    assert "gives way" not in asked
    assert "It stays whatever else is asked for" in page(staff, f"{address}/pin/")
    page(other, f"{address}/evict/", status=403)
    # no sidecar listens: that is said, and nothing is claimed
    answer = staff.post(f"{address}/evict/", follow=True)
    assert "No sidecar of machine box is connected" in answer.content.decode()
    assert (
        "not resident there any more"
        in staff.get(f"/fleet/box.cpu/residents/{'e' * 64}/evict/", follow=True).content.decode()
    )
