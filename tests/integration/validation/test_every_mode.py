"""From PEFT's or transformers' own files to an accepted version, through child and probe: each mode and each task."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from loras.validation.limits import SandboxLimits
from loras.validation.runner import ValidationOutcome, run_validation
from tests.integration.validation.conftest import Server, probe_server
from tests.integration.validation.test_peft_folder import (
    BERT,
    CLASSIFIER,
    LLAMA,
    LLAMA_CLASSIFIER,
    TAGGER,
    Base,
    saved_by_peft,
)
from tests.unit.validation.models import build, model_folder, upload_of
from tests.unit.validation.uploads import Upload
from wire.jobs import Task
from wire.manifest import Manifest
from wire.registry import Mode
from wire.reports import Finding
from workers.manifest import make_manifest

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning"),
]
LIMITS = SandboxLimits(timeout_s=200, cpu_s=200)


@dataclass(frozen=True)
class Stand:
    """Two tiny bases and a warm probe server."""

    bases: dict[str, Base]
    server: Server

    def judge(self, upload: Upload, folder: Path, manifests: list[Manifest]) -> ValidationOutcome:
        upload.manifests = manifests
        folder.mkdir()
        return run_validation(upload.request(folder), limits=LIMITS, probe_socket=self.server.socket)


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    home = tmp_path_factory.mktemp("stand")
    bases = {}
    for name, family in (("bert", BERT), ("llama", LLAMA)):
        path = model_folder(home / name, family)
        bases[name] = Base(path, make_manifest(f"tiny/{name}", f"path:{path}"))
    with probe_server(home) as server:
        yield Stand(bases, server)


def accepted(outcome: ValidationOutcome, mode: Mode, task: Task) -> None:
    report = outcome.report
    assert outcome.accepted, [row for row in report.rows if row.outcome != "pass"]
    assert report.mode is mode
    assert task in report.facts.tasks
    assert any(row.code is Finding.PROBE_PASSED for row in report.rows), report.rows


@pytest.mark.parametrize(
    ("kind", "labels", "mode", "task", "settings"),
    [
        (BERT, 0, Mode.PACKED, Task.EMBEDDINGS, {"target_modules": ["query", "dense"], "use_rslora": True}),
        (BERT, 0, Mode.MERGED, Task.EMBEDDINGS, {"target_modules": ["query", "dense"], "use_dora": True}),
        (BERT, 0, Mode.MERGED, Task.EMBEDDINGS, {"target_modules": ["query"], "bias": "all"}),
        (BERT, 0, Mode.MERGED, Task.EMBEDDINGS, {"target_modules": ["query"], "modules_to_save": ["word_embeddings"]}),
        (CLASSIFIER, 3, Mode.PACKED, Task.CLASSIFY, {"target_modules": ["query"], "task_type": "SEQ_CLS"}),
        (TAGGER, 5, Mode.PACKED, Task.TOKEN_CLASSIFY, {"target_modules": ["value"], "task_type": "TOKEN_CLS"}),
        (
            CLASSIFIER,
            2,
            Mode.MERGED,
            Task.CLASSIFY,
            {"target_modules": ["query"], "task_type": "SEQ_CLS", "bias": "all"},
        ),
        (LLAMA, 0, Mode.PACKED, Task.GENERATE, {"target_modules": "all-linear", "task_type": "CAUSAL_LM"}),
        (LLAMA, 0, Mode.MERGED, Task.GENERATE, {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}),
        (LLAMA, 0, Mode.MERGED, Task.GENERATE, {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]}),
        (LLAMA, 0, Mode.MERGED, Task.GENERATE, {"target_modules": ["q_proj", "lm_head"], "task_type": "CAUSAL_LM"}),
        (LLAMA_CLASSIFIER, 3, Mode.PACKED, Task.CLASSIFY, {"target_modules": ["q_proj"], "task_type": "SEQ_CLS"}),
    ],
)
def test_adapters(
    tmp_path: Path, stand: Stand, kind: str, labels: int, mode: Mode, task: Task, settings: dict[str, Any]
) -> None:
    base = stand.bases["llama" if kind.startswith("Llama") else "bert"]
    folder = tmp_path / "adapter"
    folder.mkdir()
    saved_by_peft(base, kind, folder, labels, settings)
    outcome = stand.judge(upload_of(folder), tmp_path / "judged", [base.manifest])
    accepted(outcome, mode, task)
    assert len(outcome.report.facts.labels) == labels


def pickled(upload: Upload) -> Upload:
    out = io.BytesIO()
    torch.save(build(BERT).state_dict(), out)
    del upload.files["model.safetensors"]
    upload.files["pytorch_model.bin"] = out.getvalue()
    return upload


MODELS: dict[str, tuple[str, Task, Callable[[Upload], Upload]]] = {
    "pickled": (BERT, Task.EMBEDDINGS, pickled),
    "decoder": (LLAMA, Task.GENERATE, lambda upload: upload),
    "classifier": (CLASSIFIER, Task.CLASSIFY, lambda upload: upload),
}


@pytest.mark.parametrize("name", list(MODELS))
def test_whole_models(tmp_path: Path, stand: Stand, name: str) -> None:
    family, task, change = MODELS[name]
    upload = change(upload_of(model_folder(tmp_path / "model", family)))
    outcome = stand.judge(upload, tmp_path / "judged", [])
    accepted(outcome, Mode.FULL, task)
    assert outcome.report.kind == "full"
