"""One site for the tests of this folder that only add to it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.integration.controlplane.site import Site, running_site


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Web, Celery with beat, NATS and Valkey; uploads up to 8 MiB."""
    home = tmp_path_factory.mktemp("site")
    with running_site(home, SHOAL_UPLOAD_MAX_BYTES=str(8 * 1024**2)) as running:
        running.start_celery()
        yield running


@pytest.fixture
def api(site: Site) -> Iterator[httpx.Client]:
    """REST with the first API key of the team ``admin``."""
    with site.api() as client:
        yield client
