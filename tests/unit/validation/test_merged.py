"""What slots cannot express is served from a copy of the base's weights: DoRA, biases, whole modules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from tests.unit.validation.uploads import (
    DECODER,
    PREFIX,
    Stored,
    acceptance,
    adapter,
    configuration,
    decoder_manifest,
    lora,
    paths,
    refusal,
    stored,
)
from wire.canonical import METADATA_KEY, CanonicalHeader
from wire.codec import decode_json
from wire.registry import Mode
from wire.reports import Finding
from wire.validation import SandboxReply

QUERY = "encoder.layer.0.attention.self.query"
NORM = "embeddings.LayerNorm"


def header_of(reply: SandboxReply) -> CanonicalHeader:
    with safe_open(reply.canonical_path, framework="np") as file:
        return decode_json(file.metadata()[METADATA_KEY], CanonicalHeader)


def merged(reply: SandboxReply, *reasons: str) -> CanonicalHeader:
    """Assert that the upload is served merged, for ``reasons``, and that the probe knows."""
    assert not reply.report.failed, reply.report.rows
    assert reply.report.mode is Mode.MERGED
    assert all(reason in reply.report.mode_reason for reason in reasons), reply.report.mode_reason
    assert any(row.check == "Serving mode" and reply.report.mode_reason in row.found for row in reply.report.rows)
    assert reply.probe is not None
    assert reply.probe.mode is Mode.MERGED
    assert reply.report.facts.has_effect
    return header_of(reply)


def peft_files(reply: SandboxReply) -> tuple[dict[str, Any], dict[str, Any]]:
    assert reply.probe is not None
    folder = Path(reply.probe.peft_dir)
    return json.loads((folder / "adapter_config.json").read_text()), load_file(folder / "adapter_model.safetensors")


def dora(
    *, shape: tuple[int, ...] = (64,), suffix: str = "", modules: tuple[str, ...] = ("query", "value")
) -> dict[str, Stored]:
    tensors = lora(paths("query", "value"))
    for path in paths(*modules):
        tensors[f"{PREFIX}{path}.lora_magnitude_vector{suffix}"] = stored(np.full(shape, 2.0))
    return tensors


@pytest.mark.parametrize(
    ("shape", "suffix"), [((64,), ""), ((64,), ".weight"), ((64,), ".default.weight"), ((1, 64), ""), ((64, 1), "")]
)
def test_dora_with_its_magnitudes(tmp_path: Path, shape: tuple[int, ...], suffix: str) -> None:
    reply = adapter(dora(shape=shape, suffix=suffix), configuration(use_dora=True)).examine(tmp_path)
    header = merged(reply, "DoRA", "4 modules")
    assert all(module.dora for module in header.modules.values())
    assert load_file(reply.canonical_path)[f"{QUERY}.lora_magnitude"].shape == (64,)
    settings, tensors = peft_files(reply)
    assert settings["use_dora"] is True
    assert f"{PREFIX}{QUERY}.lora_magnitude_vector" in tensors


def test_dora_without_the_flag(tmp_path: Path) -> None:
    refusal(adapter(dora()).examine(tmp_path), Finding.UNDECLARED_DORA, "4 DoRA", '"use_dora": true')


@pytest.mark.parametrize("modules", [(), ("query",)])
def test_dora_that_lacks_magnitudes(tmp_path: Path, modules: tuple[str, ...]) -> None:
    tensors = dora(modules=modules) if modules else lora(paths("query", "value"))
    reply = adapter(tensors, configuration(use_dora=True)).examine(tmp_path)
    refusal(reply, Finding.UNPAIRED, "magnitude", *(["2 modules"] if modules else []))


def test_a_magnitude_without_matrices(tmp_path: Path) -> None:
    tensors = dora() | {f"{PREFIX}encoder.layer.0.output.dense.lora_magnitude_vector": stored(np.ones(64))}
    refusal(adapter(tensors, configuration(use_dora=True)).examine(tmp_path), Finding.UNPAIRED, "no matrices")


def test_a_magnitude_of_another_length(tmp_path: Path) -> None:
    reply = adapter(dora(shape=(63,)), configuration(use_dora=True)).examine(tmp_path)
    refusal(reply, Finding.AB_SHAPE, "63 for 64 outputs")


def test_magnitudes_are_looked_at_for_nan(tmp_path: Path) -> None:
    tensors = dora() | {f"{PREFIX}{QUERY}.lora_magnitude_vector": stored(np.full(64, np.inf))}
    reply = adapter(tensors, configuration(use_dora=True)).examine(tmp_path)
    refusal(reply, Finding.NONFINITE, f"{PREFIX}{QUERY}.lora_magnitude_vector has 64")


@pytest.mark.parametrize("layer", ["", ".base_layer"])
@pytest.mark.parametrize("bias", ["lora_only", "all"])
def test_trained_biases_of_targets(tmp_path: Path, bias: str, layer: str) -> None:
    tensors = lora(paths("query", "value")) | {f"{PREFIX}{QUERY}{layer}.bias": stored(np.ones(64))}
    reply = adapter(tensors, configuration(bias=bias)).examine(tmp_path)
    assert merged(reply, "1 biases", f"{QUERY}.bias").replaced == [f"{QUERY}.bias"]
    assert load_file(reply.canonical_path)[f"replace:{QUERY}.bias"].tolist() == [1.0] * 64
    _, reference = peft_files(reply)
    assert f"{PREFIX}{QUERY}.base_layer.bias" in reference


def test_trained_biases_of_other_modules_under_a_task_models_prefix(tmp_path: Path) -> None:
    tensors = lora(paths("query", "value"), prefix=f"{PREFIX}bert.")
    tensors[f"{PREFIX}bert.{NORM}.bias"] = stored(np.ones(64))
    reply = adapter(tensors, configuration(bias="all")).examine(tmp_path)
    assert merged(reply).replaced == [f"{NORM}.bias"]


def test_biases_that_the_configuration_denies_are_served_and_noted(tmp_path: Path) -> None:
    tensors = lora(paths("query", "value")) | {f"{PREFIX}{QUERY}.bias": stored(np.ones(64))}
    reply = adapter(tensors, configuration(bias="none")).examine(tmp_path)
    acceptance(reply, Finding.CONFIG_INFERRED)
    merged(reply)


def test_a_bias_of_another_length_or_of_a_module_without(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    long = lora(paths("query")) | {f"{PREFIX}{QUERY}.bias": stored(np.ones(65))}
    config = configuration(bias="all", target_modules=["query"])
    refusal(adapter(long, config).examine(tmp_path / "a"), Finding.FULL_WEIGHT_IN_ADAPTER, "65", "the base has 64")
    none = lora(paths("query")) | {f"{PREFIX}embeddings.word_embeddings.bias": stored(np.ones(64))}
    refusal(adapter(none, config).examine(tmp_path / "b"), Finding.FULL_WEIGHT_IN_ADAPTER, "not in the base")


@pytest.mark.parametrize(
    "key",
    [
        "embeddings.word_embeddings.weight",
        "embeddings.word_embeddings.modules_to_save.default.weight",
        "embeddings.word_embeddings.base_layer.weight",
    ],
)
def test_whole_modules_that_fit(tmp_path: Path, key: str) -> None:
    name = "embeddings.word_embeddings.weight"
    tensors = lora(paths("query", "value")) | {PREFIX + key: stored(np.ones((100, 64)))}
    reply = adapter(tensors, configuration(modules_to_save=["word_embeddings"])).examine(tmp_path)
    assert merged(reply, "1 weights", name).replaced == [name]
    settings, reference = peft_files(reply)
    assert settings["modules_to_save"] == ["embeddings.word_embeddings"]
    assert PREFIX + name in reference


def test_the_untrained_copy_of_a_saved_module_is_left_aside(tmp_path: Path) -> None:
    key = f"{PREFIX}{NORM}"
    tensors = lora(paths("query", "value"))
    tensors |= {f"{key}.modules_to_save.default.{name}": stored(np.full(64, 3.0)) for name in ("weight", "bias")}
    tensors |= {f"{key}.original_module.{name}": stored(np.zeros(64)) for name in ("weight", "bias")}
    reply = adapter(tensors).examine(tmp_path)
    assert merged(reply).replaced == [f"{NORM}.bias", f"{NORM}.weight"]
    assert load_file(reply.canonical_path)[f"replace:{NORM}.weight"].tolist() == [3.0] * 64


def test_a_bias_that_peft_wrote_under_two_names(tmp_path: Path) -> None:
    tensors = lora(paths("query", "value"))
    tensors |= {f"{PREFIX}{NORM}.{name}": stored(np.full(64, 3.0)) for name in ("weight", "bias")}
    tensors[f"{PREFIX}{NORM}.modules_to_save.bias"] = stored(np.full(64, 3.0))
    tensors[f"{PREFIX}{NORM}.original_module.bias"] = stored(np.zeros(64))
    reply = adapter(tensors, configuration(bias="all")).examine(tmp_path)
    assert merged(reply).replaced == [f"{NORM}.bias", f"{NORM}.weight"]
    assert load_file(reply.canonical_path)[f"replace:{NORM}.bias"].tolist() == [3.0] * 64


def test_head_of_a_language_model_saved_whole_and_targeted(tmp_path: Path) -> None:
    decoder = decoder_manifest()
    tensors = lora([*paths("q_proj", manifest=decoder), "lm_head"], decoder)
    tensors[f"{PREFIX}lm_head.base_layer.weight"] = stored(np.ones((100, 64)))
    config = configuration(base_model_name_or_path=DECODER, target_modules=["q_proj", "lm_head"], task_type="CAUSAL_LM")
    reply = adapter(tensors, config).examine(tmp_path)
    header = merged(reply, "lm_head.weight", "1 modules have no slots (lm_head)")
    assert "lm_head" in header.modules
    assert header.replaced == ["lm_head.weight"]
    settings, reference = peft_files(reply)
    assert settings["modules_to_save"] is None
    assert f"{PREFIX}lm_head.base_layer.weight" in reference


def test_the_digest_covers_what_is_replaced(tmp_path: Path) -> None:
    digests = set()
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        tensors = lora(paths("query", "value")) | {f"{PREFIX}{QUERY}.bias": stored(np.full(64, float(number)))}
        digests.add(adapter(tensors, configuration(bias="all")).examine(tmp_path / str(number)).report.digest)
    assert len(digests) == 2
