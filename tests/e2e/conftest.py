"""One real stack for all end-to-end tests of a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.running import RunningStack
from tests.e2e.shipping import minilm_adapter, push_ready


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """A running stack; tests may kill its parts, not the stack."""
    # answers are compared with PEFT's to 1e-4, which bfloat16 cannot hold
    running = RunningStack(tmp_path_factory.mktemp("stack"), environment={"SHOAL_DTYPE": "float32"})
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def shipped(stack: RunningStack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The PEFT folder of ``admin/shipped``, which is live."""
    folder = minilm_adapter(tmp_path_factory.mktemp("shipped") / "lora", seed=42)
    push_ready(stack, folder, "admin/shipped")
    return folder
