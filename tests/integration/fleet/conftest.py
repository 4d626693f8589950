"""One site for all live tests, and this process's Django pointed at a test's own NATS and Valkey."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from pytest_django.fixtures import Settings

from fleet.naming import name_book
from fleet.telemetry.reader import live_reader
from tests.integration.fleet.site import Site, running_site


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A running site."""
    with running_site(tmp_path_factory.mktemp("site")) as running:
        yield running


@pytest.fixture
def live(settings: Settings, nats_url: str, redis_url: str) -> Iterator[str]:
    """This process's Django on an empty Valkey and a fresh nats-server; the value is the Valkey's address."""
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
    settings.SHOAL = settings.SHOAL.model_copy(update={"nats_url": nats_url, "redis_url": redis_url})
    settings.CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": [redis_url], "prefix": "shoal:channels"},
        }
    }
    live_reader.cache_clear()
    name_book.cache_clear()
    yield redis_url
    live_reader.cache_clear()
    name_book.cache_clear()
