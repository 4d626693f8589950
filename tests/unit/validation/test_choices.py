"""Uploads that hold more than one thing: one question, and a verdict once it is answered."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.unit.validation.uploads import (
    Upload,
    acceptance,
    adapter,
    configuration,
    lora,
    packed,
    paths,
    refusal,
    rows_of,
    safetensors_bytes,
    stored,
    zipped,
)
from wire.reports import Finding, Outcome
from wire.validation import SandboxReply

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def asks(reply: SandboxReply, code: Finding, field: str, choices: list[str]) -> None:
    assert not reply.report.failed
    assert set(rows_of(reply, Outcome.ASK)) == {code}
    assert reply.report.question is not None
    assert (reply.report.question.field, reply.report.question.choices) == (field, choices)
    assert reply.probe is None


def checkpoints() -> Upload:
    """A training run's folder: the last adapter at the top, two checkpoints below it."""
    files = {
        f"{folder}{name}": data
        for number, folder in enumerate(("run/checkpoint-10/", "run/checkpoint-9/", "run/"))
        for name, data in adapter(lora(paths("query"), seed=number)).files.items()
    }
    return packed(Upload({}), zipped(files))


def test_checkpoints_are_asked_for_in_their_order(tmp_path: Path) -> None:
    choices = ["run", "run/checkpoint-9", "run/checkpoint-10"]
    asks(checkpoints().examine(tmp_path), Finding.SEVERAL_ADAPTERS, "choice", choices)


@pytest.mark.parametrize(("choice", "seed"), [("run", 2), ("run/checkpoint-9", 1), ("run/checkpoint-10", 0)])
def test_the_chosen_checkpoint_is_validated(tmp_path: Path, choice: str, seed: int) -> None:
    (tmp_path / "chosen").mkdir()
    (tmp_path / "alone").mkdir()
    upload = checkpoints()
    upload.choice = choice
    reply = upload.examine(tmp_path / "chosen")
    assert not reply.report.failed
    alone = adapter(lora(paths("query"), seed=seed)).examine(tmp_path / "alone")
    assert reply.report.digest == alone.report.digest


def test_an_answer_that_names_nothing_asks_again(tmp_path: Path) -> None:
    upload = checkpoints()
    upload.choice = "../elsewhere"
    assert upload.examine(tmp_path).report.question is not None


def test_two_weight_files_in_one_folder(tmp_path: Path) -> None:
    (tmp_path / "asked").mkdir()
    (tmp_path / "answered").mkdir()
    files = adapter().files
    upload = Upload({CONFIG: files[CONFIG], "a.safetensors": b"x", "b.safetensors": files[WEIGHTS]})
    reply = upload.examine(tmp_path / "asked")
    asks(reply, Finding.SEVERAL_ADAPTERS, "choice", ["a.safetensors", "b.safetensors"])
    upload.choice = "b.safetensors"
    acceptance(upload.examine(tmp_path / "answered"), Finding.FILES_IGNORED)


def model_and_adapter() -> Upload:
    whole = safetensors_bytes({"encoder.layer.0.attention.self.query.weight": stored(np.ones((64, 64)))})
    return Upload(
        {
            "model.safetensors": whole,
            "config.json": b'{"model_type": "novel"}',
            CONFIG: json.dumps(configuration()).encode(),
        }
    )


def test_a_model_with_an_adapter_configuration_beside_it(tmp_path: Path) -> None:
    reply = model_and_adapter().examine(tmp_path)
    asks(reply, Finding.FULL_MODEL, "kind", ["lora", "full"])
    assert "model.safetensors" in rows_of(reply, Outcome.ASK)[Finding.FULL_MODEL].found


@pytest.mark.parametrize(("kind", "code"), [("lora", Finding.FULL_MODEL), ("full", Finding.ARCHITECTURE_UNSUPPORTED)])
def test_the_answered_kind_is_what_it_is_judged_as(tmp_path: Path, kind: str, code: Finding) -> None:
    upload = model_and_adapter()
    upload.kind = kind
    reply = upload.examine(tmp_path)
    refusal(reply, code)
    assert reply.report.kind == kind


def test_a_kind_that_the_upload_is_not(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    upload = adapter()
    upload.kind = "full"
    refusal(upload.examine(tmp_path / "a"), Finding.FILE_MISSING, "kind full", WEIGHTS)
    model = Upload({"model.safetensors": b"x", "config.json": b"{}"}, kind="lora")
    refusal(model.examine(tmp_path / "b"), Finding.FULL_MODEL, "kind lora", "model.safetensors")
