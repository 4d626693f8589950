"""Real NATS and Valkey for every integration test that asks for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import ServerProcess, nats_server, valkey_server


@pytest.fixture
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A nats-server of this test alone."""
    with nats_server(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
def nats_url(nats: ServerProcess) -> str:
    """Address of this test's nats-server."""
    return f"nats://127.0.0.1:{nats.port}"


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One Valkey for the session."""
    with valkey_server(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture
def redis_url(valkey: ServerProcess) -> str:
    """Address of the session's Valkey."""
    return f"redis://127.0.0.1:{valkey.port}/0"
