"""The stand as a fixture."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.integration.gateway.stand import Stand, running_stand


@pytest.fixture
async def stand(nats_url: str) -> AsyncIterator[Stand]:
    """A ready gateway with default settings."""
    async with running_stand(nats_url) as made:
        yield made
