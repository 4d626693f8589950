"""Aliases under many hands, rollbacks that go further back, and canaries that are held without a person."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
import redis
from django.utils import timezone

from controlplane.events.models import Event
from fleet.telemetry import keys
from loras.metrics.canaries import judge_canaries
from loras.metrics.histogram import BUCKETS
from loras.models import Adapter, Alias, AliasHold, Artifact, Version
from loras.services import (
    delete_adapter,
    delete_version,
    discard_unused_content,
    move_alias,
    open_hold,
    purge_deleted,
    resume_canary,
    retire_version,
    rollback,
)
from tests.integration.registry.shop import Shop
from wire.codec import encode
from wire.errors import ShoalError
from wire.usage import TargetUsage, Usage


def live(shop: Shop) -> dict[str, int]:
    split: dict[str, int] = Alias.objects.get(adapter=shop.adapter(), name="live").split
    return split


def test_rollbacks_go_further_back_and_never_forth(shop: Shop) -> None:
    for _ in range(5):
        shop.ready()
    adapter = shop.adapter()
    for number in (2, 3, 4):
        move_alias(adapter=adapter, alias="live", split={number: 100})
    rollback(adapter=adapter)
    assert live(shop) == {"3": 100}
    rollback(adapter=adapter)
    assert live(shop) == {"2": 100}
    # a new version after the rollback: back from it is where it came from, not what was rolled back
    move_alias(adapter=adapter, alias="live", split={5: 100})
    rollback(adapter=adapter)
    assert live(shop) == {"2": 100}
    rollback(adapter=adapter)
    assert live(shop) == {"1": 100}
    with pytest.raises(ShoalError, match="Nothing that is still ready"):
        rollback(adapter=adapter)


def test_a_rollback_passes_over_canaries_and_what_is_retired(shop: Shop) -> None:
    versions = [shop.ready() for _ in range(3)]
    adapter = shop.adapter()
    move_alias(adapter=adapter, alias="live", split={2: 100})
    move_alias(adapter=adapter, alias="live", split={2: 90, 3: 10})
    rollback(adapter=adapter)
    assert live(shop) == {"2": 100}
    move_alias(adapter=adapter, alias="live", split={2: 90, 3: 10})
    move_alias(adapter=adapter, alias="live", split={3: 100})
    retire_version(version=versions[1])
    rollback(adapter=adapter)
    assert live(shop) == {"1": 100}


@pytest.fixture
def client(home: object, redis_url: str) -> Iterator[redis.Redis]:
    """The session's Valkey, emptied."""
    with redis.Redis.from_url(redis_url) as found:
        found.flushdb()
        yield found


def spoken(client: redis.Redis, at: float, *, failed: dict[int, int], requests: dict[int, int]) -> None:
    """What a gateway says of one second of the alias live, put where the bridge puts it."""
    targets = []
    for number, count in requests.items():
        latency = [0] * BUCKETS
        latency[2] = count - failed.get(number, 0)
        codes = {"internal_error": failed[number]} if failed.get(number) else {}
        targets.append(
            TargetUsage("acme", f"acme/search@{number}", count, latency, 10.0 * count, alias="live", failed=codes)
        )
    usage = Usage("gateway-1", at, targets)
    client.hset(keys.usage(int(at) // 60 * 60), f"gateway-1|{at:.3f}", encode(usage))


def test_a_failing_canary_is_held_without_a_person_and_does_not_flap(shop: Shop, client: redis.Redis) -> None:
    shop.ready(), shop.ready()
    adapter = shop.adapter()
    before = time.time() - 5
    # failures of before the canary began are not its own
    spoken(client, before, requests={1: 100, 2: 50}, failed={2: 50})
    move_alias(adapter=adapter, alias="live", split={1: 90, 2: 10})
    assert judge_canaries(now=before + 10) == 0

    later = time.time() + 10
    spoken(client, later, requests={1: 180, 2: 19}, failed={2: 19})
    assert judge_canaries(now=later + 1) == 0
    spoken(client, later + 1, requests={1: 20, 2: 5}, failed={2: 5})
    assert judge_canaries(now=later + 2) == 1
    assert live(shop) == {"1": 100}
    hold = open_hold(adapter, "live")
    assert hold is not None
    assert "24 of 24 requests failed (internal_error)" in hold.reason
    assert hold.figures["2"]["requests"] == 24
    event = Event.objects.get(kind="canary.held")
    assert (event.actor, event.subject) == (None, "acme/search@2")
    # the same figures again: nothing is left to hold
    assert judge_canaries(now=later + 3) == 0

    # a person puts it back: old figures do not count, new ones do
    resume_canary(adapter=adapter, alias="live", actor=shop.owner)
    assert live(shop) == {"1": 90, "2": 10}
    assert open_hold(adapter, "live") is None
    Alias.objects.filter(adapter=adapter).update(moved_at=timezone.now() + timedelta(seconds=20))
    assert judge_canaries(now=later + 15) == 0
    spoken(client, later + 30, requests={1: 180, 2: 20}, failed={})
    assert judge_canaries(now=later + 31) == 0
    assert AliasHold.objects.count() == 1


def test_a_moved_alias_is_not_held_by_figures_of_its_old_split(shop: Shop) -> None:
    for _ in range(3):
        shop.ready()
    adapter = shop.adapter()
    seen = move_alias(adapter=adapter, alias="live", split={1: 90, 2: 10})
    move_alias(adapter=adapter, alias="live", split={1: 50, 2: 50})
    from loras.services import hold_canary

    assert hold_canary(alias=seen, number=2, reason="old figures", figures={}) is None
    with pytest.raises(ShoalError, match="No canary"):
        resume_canary(adapter=adapter, alias="live")


def test_what_was_deleted_is_swept_after_a_week_with_its_bytes(shop: Shop) -> None:
    shop.ready(), shop.ready()
    kept = shop.ready("other")
    second = Version.objects.get(adapter=shop.adapter(), number=2)
    delete_version(version=second)
    delete_adapter(adapter=Adapter.objects.get(name="search"), confirm="acme/search")
    assert purge_deleted() == 0
    week = timezone.now() - timedelta(days=7, minutes=1)
    Adapter.everything.exclude(deleted_at=None).update(deleted_at=week)
    Version.objects.exclude(deleted_at=None).update(deleted_at=week)
    assert purge_deleted() == 1
    assert list(Version.objects.values_list("pk", flat=True)) == [kept.pk]
    Artifact.objects.update(stored_at=week)
    # two versions, each with its upload and its canonical file
    assert discard_unused_content() == 4
    assert Artifact.objects.count() == 2
