"""Adapters of a test, and the ``shoal`` command as a person runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.artifacts import minilm_shapes, random_adapter, targets
from tests.e2e.running import PROJECT, RunningStack


def minilm_adapter(folder: Path, *, seed: int, rank: int = 16, modules: tuple[str, ...] = ("query", "value")) -> Path:
    """A PEFT folder of a random LoRA with real effect on MiniLM."""
    shapes = minilm_shapes()
    return random_adapter(shapes, dict.fromkeys(targets(shapes, *modules), rank), seed=seed).write_peft(folder)


def shoal(stack: RunningStack, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs ``shoal`` against ``stack``."""
    ours = {"SHOAL_URL": stack.endpoints.web, "SHOAL_API_KEY": str(stack.credentials.api_key)}
    return subprocess.run(
        [sys.executable, "-m", "client", *arguments],
        cwd=PROJECT,
        env=os.environ | ours | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def push_ready(stack: RunningStack, folder: Path, name: str) -> dict[str, Any]:
    """Pushes ``folder`` and expects it to get ready; the version as JSON."""
    done = shoal(stack, "push", str(folder), "--name", name, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    version: dict[str, Any] = json.loads(done.stdout)
    assert version["state"] == "ready"
    return version
