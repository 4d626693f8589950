"""A shop in a home of its own; nothing of it is put on a queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loras.evaluation import asking, running
from tests.integration.registry.gateway import Gateway, running_gateway
from tests.integration.registry.shop import Shop, open_shop


@pytest.fixture
def home(settings: Any, tmp_path: Path, nats_url: str, redis_url: str) -> Path:
    """This process's Django on an empty store, a fresh nats-server and the session's Valkey."""
    found = tmp_path / "home"
    update = {"home": found, "storage_url": "", "nats_url": nats_url, "redis_url": redis_url}
    settings.SHOAL = settings.SHOAL.model_copy(update=update)
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    return found


@pytest.fixture
def shop(home: Path, tmp_path: Path, db: None) -> Shop:
    """Team ``acme``."""
    return open_shop(tmp_path)


@pytest.fixture
def gateway(shop: Shop, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    """On loopback; what may pass is waited for a moment only."""
    with running_gateway() as (script, url):
        settings.SHOAL = settings.SHOAL.model_copy(update={"gateway_url": url})
        monkeypatch.setattr(running, "PATIENCE_S", 2.0)
        monkeypatch.setattr(asking, "PAUSE_S", 0.01)
        yield script
