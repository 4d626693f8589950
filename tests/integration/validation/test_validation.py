"""Whole validations of real MiniLM adapters: limited child, canonical artifact, probe against PEFT."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from loras.validation.pipeline import examine
from loras.validation.probing import probe
from loras.validation.runner import Ending, SandboxLimits, ValidationOutcome, run_validation
from tests.integration.validation.conftest import MakeAdapter, Server, request_for
from wire.manifest import Manifest
from wire.reports import Finding, Outcome
from wire.validation import UploadedFile, ValidationRequest

# real models are loaded; on a busy machine that alone takes a minute
pytestmark = pytest.mark.timeout(400)
LIMITS = SandboxLimits()
WEIGHTS = "adapter_model.safetensors"


def codes(outcome: ValidationOutcome, kind: Outcome = Outcome.FAIL) -> set[Finding]:
    return {row.code for row in outcome.report.rows if row.outcome is kind}


@pytest.mark.parametrize(
    "settings",
    [
        {"r": 16, "lora_alpha": 32, "target_modules": ["query", "value"]},
        {"r": 8, "lora_alpha": 4, "target_modules": "all-linear", "use_rslora": True},
        {"r": 8, "target_modules": r".*layer\.[0-2]\..*(query|dense)", "exclude_modules": ["pooler.dense"]},
        {"r": 4, "target_modules": ["key"], "layers_to_transform": [0, 4], "layers_pattern": "layer"},
        {
            "r": 8,
            "lora_alpha": 16,
            "target_modules": ["query", "key", "dense"],
            "use_rslora": True,
            "rank_pattern": {"query": 4, r"layer\.1\.attention\.self\.key": 12},
            "alpha_pattern": {"dense": 64, r"encoder\.layer\.[0-3]\..*query": 2, r".*": 7},
        },
        {"r": 8, "target_modules": ["query"], "dtype": torch.bfloat16},
        {"r": 8, "target_modules": ["query"], "dtype": torch.float16},
    ],
    ids=["plain", "all-linear-rslora", "regex", "layers", "patterns", "bf16", "fp16"],
)
def test_adapters_of_peft_pass_with_its_output(
    tmp_path: Path, make_adapter: MakeAdapter, minilm: Manifest, server: Server, settings: dict[str, Any]
) -> None:
    folder = make_adapter(**settings)
    outcome = run_validation(request_for(folder, tmp_path, minilm), limits=LIMITS, probe_socket=server.socket)
    assert outcome.ending is Ending.DECIDED
    assert not codes(outcome), [row for row in outcome.report.rows if row.outcome is Outcome.FAIL]
    assert Finding.PROBE_PASSED in codes(outcome, Outcome.PASS)
    assert outcome.canonical_path is not None
    assert hashlib.sha256(outcome.canonical_path.read_bytes()).hexdigest() == outcome.report.digest
    assert outcome.report.facts.has_effect
    assert outcome.report.seconds > 0


def test_probe_in_a_child_of_its_own(
    tmp_path: Path, make_adapter: MakeAdapter, minilm: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_PROBE_SOCKET", str(tmp_path / "nobody-listens"))
    work = tmp_path / "work"
    work.mkdir()
    folder = make_adapter(r=4, target_modules=["query"])
    outcome = run_validation(request_for(folder, work, minilm), limits=SandboxLimits(timeout_s=110, cpu_s=110))
    assert outcome.accepted, outcome.report.rows


def test_same_content_packed_again_has_the_same_digest(
    tmp_path: Path, make_adapter: MakeAdapter, minilm: Manifest, server: Server
) -> None:
    folder = make_adapter(r=4, target_modules=["query"])
    digests = []
    for number, (level, wrap) in enumerate([(0, ""), (9, "my-adapter/")]):
        archive = tmp_path / f"{number}.zip"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as out:
            for path in sorted(folder.iterdir(), reverse=bool(number)):
                out.write(path, wrap + path.name)
        work = tmp_path / str(number)
        work.mkdir()
        request = ValidationRequest(
            files=[UploadedFile(name=archive.name, location=str(archive))], work_dir=str(work), manifests=[minilm]
        )
        outcome = run_validation(request, limits=LIMITS, probe_socket=server.socket)
        assert outcome.accepted
        digests.append(outcome.report.digest)
    assert digests[0] == digests[1]


def test_keys_of_a_wrapped_model_still_change_the_output(
    tmp_path: Path, make_adapter: MakeAdapter, minilm: Manifest, server: Server
) -> None:
    folder = tmp_path / "wrapped"
    shutil.copytree(make_adapter(r=4, target_modules=["query"]), folder)
    tensors = load_file(str(folder / WEIGHTS))
    renamed = {
        name.replace("base_model.model.", "module.base_model.model.bert.").replace(".weight", ".default.weight"): tensor
        for name, tensor in tensors.items()
    }
    save_file(renamed, str(folder / WEIGHTS))
    work = tmp_path / "work"
    work.mkdir()
    outcome = run_validation(request_for(folder, work, minilm), limits=LIMITS, probe_socket=server.socket)
    assert outcome.accepted
    assert codes(outcome, Outcome.NOTE) >= {Finding.KEYS_NORMALISED}


def spoiled(source: Path, target: Path, change: Any) -> Path:
    """A copy of an adapter whose tensors went through ``change``."""
    shutil.copytree(source, target)
    tensors = load_file(str(target / WEIGHTS))
    save_file({name: change(name, tensor) for name, tensor in tensors.items()}, str(target / WEIGHTS))
    return target


def test_untrained_adapter_is_ready_with_a_note(
    tmp_path: Path, make_adapter: MakeAdapter, minilm: Manifest, server: Server
) -> None:
    folder = make_adapter(r=4, target_modules=["query"], scale=0.0)
    outcome = run_validation(request_for(folder, tmp_path, minilm), limits=LIMITS, probe_socket=server.socket)
    assert outcome.accepted
    assert Finding.NO_EFFECT in codes(outcome, Outcome.NOTE)
    assert not outcome.report.facts.has_effect


def test_effect_below_rounding_is_no_effect(
    tmp_path: Path, make_adapter: MakeAdapter, minilm: Manifest, server: Server
) -> None:
    folder = make_adapter(r=4, target_modules=["query"], scale=1e-9)
    outcome = run_validation(request_for(folder, tmp_path, minilm), limits=LIMITS, probe_socket=server.socket)
    assert outcome.accepted
    assert Finding.NO_EFFECT in codes(outcome, Outcome.NOTE)
    assert not outcome.report.facts.has_effect


def test_finite_weights_whose_output_is_not(
    tmp_path: Path, make_adapter: MakeAdapter, minilm: Manifest, server: Server
) -> None:
    source = make_adapter(r=4, target_modules=["query", "dense"])
    folder = spoiled(source, tmp_path / "huge", lambda name, tensor: torch.full_like(tensor, 3e38))
    work = tmp_path / "work"
    work.mkdir()
    outcome = run_validation(request_for(folder, work, minilm), limits=LIMITS, probe_socket=server.socket)
    assert codes(outcome) == {Finding.PROBE_NONFINITE}
    assert outcome.canonical_path is None


def test_settings_that_differ_between_artifact_and_reference_are_caught(
    tmp_path: Path, make_adapter: MakeAdapter, minilm: Manifest, server: Server
) -> None:
    """The probe is no rubber stamp: another alpha for PEFT than for the artifact fails, also for a weak adapter."""
    for scale in (0.02, 3e-4):
        work = tmp_path / str(scale)
        work.mkdir()
        reply = examine(request_for(make_adapter(r=4, target_modules=["query"], scale=scale), work, minilm))
        assert reply.probe is not None
        config = Path(reply.probe.peft_dir) / "adapter_config.json"
        settings = json.loads(config.read_text())
        config.write_text(json.dumps(settings | {"lora_alpha": settings["lora_alpha"] * 1.1}))
        rows = probe(reply.probe, limits=LIMITS, server=server.socket).rows
        assert [row.code for row in rows] == [Finding.PROBE_MISMATCH]


def test_refused_uploads_never_reach_the_probe(tmp_path: Path, minilm: Manifest) -> None:
    path = tmp_path / "w"
    path.write_bytes(np.random.default_rng(1).bytes(4096))
    work = tmp_path / "work"
    work.mkdir()
    request = ValidationRequest(
        files=[
            UploadedFile(name=WEIGHTS, location=str(path)),
            UploadedFile(name="adapter_config.json", location=str(path)),
        ],
        work_dir=str(work),
        manifests=[minilm],
    )
    outcome = run_validation(request, limits=LIMITS, probe_socket=tmp_path / "nobody-listens")
    assert codes(outcome) == {Finding.HEADER_INVALID}
    assert outcome.ending is Ending.DECIDED
