"""One real stack for all end-to-end tests of a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.running import RunningStack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """A running stack; tests may kill its parts, not the stack."""
    running = RunningStack(tmp_path_factory.mktemp("stack"))
    running.start()
    yield running
    running.stop()
