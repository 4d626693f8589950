"""Adapters that pass, and what the canonical artifact says of them."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from tests.unit.validation.uploads import (
    Upload,
    acceptance,
    adapter,
    configuration,
    encoder_manifest,
    lora,
    packed,
    paths,
    refusal,
    tarred,
    zipped,
)
from wire.canonical import METADATA_KEY, CanonicalHeader
from wire.codec import decode_json
from wire.reports import Finding
from wire.validation import SandboxReply


def header_of(reply: SandboxReply) -> CanonicalHeader:
    with safe_open(reply.canonical_path, framework="np") as file:
        return decode_json(file.metadata()[METADATA_KEY], CanonicalHeader)


@pytest.mark.parametrize("targets", [["query", "value"], ["dense"], ["query", "key", "value", "dense"]])
def test_plain_lora_passes_and_the_artifact_holds_its_tensors(tmp_path: Path, targets: list[str]) -> None:
    modules = paths(*targets)
    tensors = lora(modules)
    reply = adapter(tensors, configuration(target_modules=targets)).examine(tmp_path)
    acceptance(reply)
    assert hashlib.sha256(Path(reply.canonical_path).read_bytes()).hexdigest() == reply.report.digest
    written = load_file(reply.canonical_path)
    assert set(written) == {f"{path}.lora_{side}" for path in modules for side in "AB"}
    for path in modules:
        source = tensors[f"base_model.model.{path}.lora_A.weight"]
        assert written[f"{path}.lora_A"].tobytes() == source.data
    header = header_of(reply)
    assert {module.scale for module in header.modules.values()} == {2.0}
    assert reply.report.facts.modules == len(modules)
    assert reply.report.facts.has_effect


@pytest.mark.parametrize("targets", ["all-linear", r".*\.(query|value)", None])
def test_targets_are_resolved_from_the_tensors(tmp_path: Path, targets: str | None) -> None:
    reply = adapter(config=configuration(target_modules=targets)).examine(tmp_path)
    acceptance(reply, Finding.TARGETS_RESOLVED)
    assert reply.report.facts.targets == ["query", "value"]


def test_prefixed_target_names(tmp_path: Path) -> None:
    reply = adapter(config=configuration(target_modules=["self.query", "self.value"])).examine(tmp_path)
    acceptance(reply)


def test_patterns_and_rslora_scale_each_module_on_its_own(tmp_path: Path) -> None:
    modules = paths("query", "value")
    ranks = {path: 2 if path.endswith("1.attention.self.query") else 4 for path in modules}
    config = configuration(
        rank_pattern={"layer.1.attention.self.query": 2}, alpha_pattern={r".*value": 32}, use_rslora=True
    )
    reply = adapter(lora(modules, rank=ranks), config).examine(tmp_path)
    acceptance(reply)
    for path, module in header_of(reply).modules.items():
        alpha = 32 if path.endswith("value") else 8
        assert module.rank == ranks[path]
        assert module.scale == alpha / math.sqrt(ranks[path])


def test_layers_to_transform(tmp_path: Path) -> None:
    modules = ["encoder.layer.1.attention.self.query"]
    config = configuration(target_modules=["query"], layers_to_transform=[1], layers_pattern="layer")
    acceptance(adapter(lora(modules), config).examine(tmp_path))


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_float_types(tmp_path: Path, dtype: str) -> None:
    reply = adapter(lora(paths("query"), dtype=dtype), configuration(target_modules=["query"])).examine(tmp_path)
    acceptance(reply)
    assert reply.report.facts.dtype == dtype


def test_mixed_float_types_keep_theirs_and_stay_aligned(tmp_path: Path) -> None:
    tensors = lora(paths("query"), rank=3, dtype="F16") | lora(paths("value"), rank=3)
    reply = adapter(tensors, configuration(r=3)).examine(tmp_path)
    acceptance(reply)
    written = load_file(reply.canonical_path)
    assert {array.dtype.itemsize for array in written.values()} == {2, 4}
    assert all(np.isfinite(array).all() for array in written.values())


def test_untrained_adapter_is_noted(tmp_path: Path) -> None:
    reply = adapter(lora(paths("query"), zero_b=True), configuration(target_modules=["query"])).examine(tmp_path)
    acceptance(reply, Finding.NO_EFFECT)
    assert not reply.report.facts.has_effect
    assert reply.probe is not None
    assert not reply.probe.expect_effect


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"modules_to_save": ["classifier"]}, Finding.MODULES_TO_SAVE_ABSENT),
        ({"future_option": None, "note": "run 7"}, Finding.UNKNOWN_KEYS_INERT),
        ({"peft_type": ...}, Finding.CONFIG_INFERRED),
        ({"r": ...}, Finding.CONFIG_INFERRED),
        ({"lora_alpha": ...}, Finding.CONFIG_INFERRED),
        ({"bias": "all"}, Finding.CONFIG_INFERRED),
    ],
)
def test_accepted_with_a_note(tmp_path: Path, changes: dict[str, object], note: Finding) -> None:
    acceptance(adapter(config=configuration(**changes)).examine(tmp_path), note)


def test_bias_null_passes(tmp_path: Path) -> None:
    acceptance(adapter(config=configuration(bias=None)).examine(tmp_path))


@pytest.mark.parametrize(
    ("prefix", "infix"),
    [
        ("", ""),
        ("base_model.model.base_model.model.", ""),
        ("module.base_model.model.", ""),
        ("base_model.model._orig_mod.", ""),
        ("base_model.model.", ".default"),
        ("base_model.model.bert.", ""),
        ("base_model.model.0.auto_model.", ""),
        ("_forward_module.student.encoder_q.base_model.model.", ""),
        ("module.model.base_model.model.bert.", ".default"),
    ],
)
def test_key_prefixes_are_normalised_to_the_same_version(tmp_path: Path, prefix: str, infix: str) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "odd").mkdir()
    plain = adapter().examine(tmp_path / "plain")
    odd = adapter(lora(paths("query", "value"), prefix=prefix, infix=infix)).examine(tmp_path / "odd")
    acceptance(odd, Finding.KEYS_NORMALISED)
    assert odd.report.digest == plain.report.digest


def test_keys_of_loralib_without_an_ending(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "bare").mkdir()
    bare = {name.removesuffix(".weight"): tensor for name, tensor in lora(paths("query", "value"), prefix="").items()}
    reply = adapter(bare).examine(tmp_path / "bare")
    acceptance(reply, Finding.KEYS_NORMALISED)
    assert reply.report.digest == adapter().examine(tmp_path / "plain").report.digest


def test_two_towers_in_one_file_are_two_adapters(tmp_path: Path) -> None:
    towers = [lora(paths("query"), prefix=f"{tower}.base_model.model.") for tower in ("query_model", "text_model")]
    refusal(adapter(towers[0] | towers[1]).examine(tmp_path), Finding.SEVERAL_ADAPTERS, "4 tensors twice")


def test_patterns_written_for_a_task_model_survive_the_removal_of_its_prefix(tmp_path: Path) -> None:
    modules = paths("query")
    ranks = {path: 2 if ".0." in path else 4 for path in modules}
    config = configuration(
        target_modules=["query"], rank_pattern={r"bert\.encoder\.layer\.0\.attention\.self\.query": 2}
    )
    reply = adapter(lora(modules, rank=ranks, prefix="base_model.model.bert."), config).examine(tmp_path)
    acceptance(reply, Finding.KEYS_NORMALISED)
    assert reply.probe is not None
    settings = json.loads((Path(reply.probe.peft_dir) / "adapter_config.json").read_text())
    assert settings["rank_pattern"] == {r"encoder\.layer\.0\.attention\.self\.query": 2}


def test_the_probe_gets_the_settings_as_uploaded(tmp_path: Path) -> None:
    config = configuration(use_rslora=True, alpha_pattern={"query": 3})
    reply = adapter(config=config).examine(tmp_path)
    assert reply.probe is not None
    settings = json.loads((Path(reply.probe.peft_dir) / "adapter_config.json").read_text())
    assert {key: settings[key] for key in ("r", "lora_alpha", "use_rslora", "alpha_pattern")} == {
        key: config[key] for key in ("r", "lora_alpha", "use_rslora", "alpha_pattern")
    }


def variants(upload: Upload) -> list[Upload]:
    files = upload.files
    wrapped = {f"run-7/{name}": data for name, data in files.items()}
    backwards = dict(reversed(files.items()))
    renamed = {
        "adapter_config.json": files["adapter_config.json"],
        "mine.safetensors": files["adapter_model.safetensors"],
    }
    return [
        packed(upload, zipped(files)),
        packed(upload, zipped(wrapped, method=0), "x.zip"),
        packed(upload, zipped(backwards)),
        packed(upload, tarred(wrapped), "x.tar.gz"),
        packed(upload, tarred(files, mode="w"), "x.tar"),
        Upload(wrapped),
        Upload(renamed),
    ]


def test_the_same_content_has_one_digest_however_it_was_packed(tmp_path: Path) -> None:
    upload = adapter()
    (tmp_path / "first").mkdir()
    expected = upload.examine(tmp_path / "first").report.digest
    for number, variant in enumerate(variants(upload)):
        (tmp_path / str(number)).mkdir()
        reply = variant.examine(tmp_path / str(number))
        acceptance(reply)
        assert reply.report.digest == expected


def test_other_tensor_order_metadata_and_inert_keys_do_not_change_the_digest(tmp_path: Path) -> None:
    tensors = lora(paths("query", "value"))
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    first = adapter(tensors).examine(tmp_path / "a").report.digest
    config = configuration(lora_dropout=0.3, revision="main")
    assert adapter(dict(reversed(tensors.items())), config).examine(tmp_path / "b").report.digest == first
    assert adapter(tensors, configuration(lora_alpha=9)).examine(tmp_path / "c").report.digest != first


def test_base_that_the_uploader_names_wins_over_the_configuration(tmp_path: Path) -> None:
    upload = adapter(config=configuration(base_model_name_or_path="/home/someone/models/base"))
    upload.manifests = [encoder_manifest("tiny/other"), encoder_manifest()]
    upload.wanted = "tiny/other"
    reply = upload.examine(tmp_path)
    acceptance(reply)
    assert reply.report.facts.base_model == "tiny/other"
