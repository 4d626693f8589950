"""adapter_config.json: what cannot be read, and variants that slots cannot express."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.validation.uploads import (
    PREFIX,
    Upload,
    acceptance,
    adapter,
    configuration,
    lora,
    paths,
    refusal,
    safetensors_bytes,
    stored,
)
from wire.reports import Finding

QUERY = "encoder.layer.0.attention.self.query"


def with_config(text: bytes) -> Upload:
    upload = adapter()
    upload.files["adapter_config.json"] = text
    return upload


def with_tensor(name: str, array: Any, config: dict[str, Any] | None = None) -> Upload:
    return adapter(lora(paths("query", "value")) | {name: stored(array)}, config)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "empty"),
        (b"[]", "list"),
        (b"{", "not JSON"),
        (b"\xff\xfe{", "not JSON"),
        (b'{"a":' * 100_000, "not JSON"),
        (b'{"r": "four"}', "r is 'four'"),
        (b'{"r": 1e999}', "r is inf"),
        (b'{"r": 4.5}', "whole number"),
        (b'{"r": true}', "r is True"),
        (b'{"lora_alpha": NaN}', "lora_alpha is nan"),
        (b'{"rank_pattern": [1]}', "rank_pattern"),
        (b'{"rank_pattern": {"q": null}}', "null"),
        (b'{"rank_pattern": {"q": 1.5}}', "1.5"),
        (b'{"alpha_pattern": {"(": 4}}', "regular expression"),
        (b'{"target_modules": "*query"}', "regular expression"),
        (b'{"rank_pattern": {"(?i)query": 4}}', "regular expression"),
        (b'{"layers_to_transform": [0], "layers_pattern": "layer("}', "layers_pattern has 'layer('"),
        (b'{"layers_pattern": ["(?P<layer>h)"]}', "layers_pattern"),
        (b'{"target_modules": [1]}', "target_modules"),
        (b'{"layers_to_transform": ["1"]}', "layers_to_transform"),
        (b'{"use_rslora": "yes"}', "use_rslora"),
        (b'{"base_model_name_or_path": 7}', "base_model_name_or_path"),
        (b" " * (5 << 20), "limit"),
    ],
)
def test_unreadable_configuration(tmp_path: Path, text: bytes, words: str) -> None:
    refusal(with_config(text).examine(tmp_path), Finding.CONFIG_INVALID, words)


@pytest.mark.parametrize(
    "changes",
    [
        {"rank_pattern": {"(([a-z.0-9])*)*X": 4}},
        {"alpha_pattern": {"query": 8, "(([a-z.0-9])*)*X": 4}},
        {"layers_to_transform": [0], "layers_pattern": ["(([a-z.0-9])*)*X"]},
    ],
)
def test_patterns_that_never_end(tmp_path: Path, changes: dict[str, Any]) -> None:
    reply = adapter(config=configuration(**changes)).examine(tmp_path)
    refusal(reply, Finding.CONFIG_INVALID, "(([a-z.0-9])*)*X", list(changes)[-1], "4 module names")


def test_a_byte_order_mark_is_fine(tmp_path: Path) -> None:
    acceptance(with_config(b"\xef\xbb\xbf" + json.dumps(configuration()).encode()).examine(tmp_path))


@pytest.mark.parametrize("kind", ["IA3", "PROMPT_TUNING", "ADALORA", "LOHA", "OFT", "VERA"])
def test_other_types(tmp_path: Path, kind: str) -> None:
    refusal(adapter(config=configuration(peft_type=kind)).examine(tmp_path), Finding.TYPE_UNSUPPORTED, kind)


def test_fields_that_mean_something_else_in_another_type(tmp_path: Path) -> None:
    """AdaLoRA's rank_pattern holds lists, which is no fault of the configuration."""
    config = configuration(peft_type="ADALORA", rank_pattern={QUERY: [True, False]}, r="?", target_modules=None)
    refusal(adapter(config=config).examine(tmp_path), Finding.TYPE_UNSUPPORTED, "ADALORA")


def test_a_configuration_of_another_tool_is_told_by_the_keys(tmp_path: Path) -> None:
    data = safetensors_bytes({f"model.layers.0.q_proj.lora_{side}": stored(np.ones((4, 4))) for side in "ab"})
    config = {"fine_tune_type": "lora", "lora_parameters": {"rank": 8, "scale": 20.0}, "r": "unset"}
    refusal(adapter(data, config).examine(tmp_path), Finding.FORMAT_MLX, "lora_a transposed")


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (f"{PREFIX}{QUERY}.ia3_l", "IA3"),
        (f"{PREFIX}{QUERY}.hada_w1_a", "LOHA"),
        ("prompt_embeddings", "PROMPT_TUNING"),
        (f"{PREFIX}{QUERY}.lora_E", "ADALORA"),
    ],
)
def test_tensors_of_other_types_under_a_lora_configuration(tmp_path: Path, key: str, kind: str) -> None:
    data = safetensors_bytes({key: stored(np.ones((4, 4)))})
    refusal(adapter(data).examine(tmp_path), Finding.TYPE_UNSUPPORTED, kind)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"lora_bias": True}, "lora_bias"),
        ({"use_qalora": True}, "use_qalora"),
        ({"target_parameters": ["mlp.weight"]}, "target_parameters"),
        ({"trainable_token_indices": [1, 2]}, "trainable_token_indices"),
        ({"layer_replication": [[0, 1]]}, "layer_replication"),
        ({"init_lora_weights": "pissa_niter_4"}, "path_initial_model_for_weight_conversion"),
        ({"init_lora_weights": "olora"}, "olora"),
        ({"use_next_big_thing": True}, "use_next_big_thing"),
        ({"quantum_config": {"depth": 3}}, "quantum_config"),
    ],
)
def test_variants_that_change_the_output(tmp_path: Path, changes: dict[str, Any], word: str) -> None:
    reply = adapter(config=configuration(**changes)).examine(tmp_path)
    refusal(reply, Finding.VARIANT_UNSUPPORTED, word)


def test_magnitudes_without_the_flag(tmp_path: Path) -> None:
    upload = with_tensor(f"{PREFIX}{QUERY}.lora_magnitude_vector", np.ones(64))
    refusal(upload.examine(tmp_path), Finding.UNDECLARED_DORA, "lora_magnitude_vector", "use_dora")


def test_biases_of_lora_b(tmp_path: Path) -> None:
    upload = with_tensor(f"{PREFIX}{QUERY}.lora_B.bias", np.ones(64))
    refusal(upload.examine(tmp_path), Finding.VARIANT_UNSUPPORTED, "lora_bias")


def test_embedding_lora(tmp_path: Path) -> None:
    upload = with_tensor(f"{PREFIX}embeddings.word_embeddings.lora_embedding_A", np.ones((4, 100)))
    refusal(upload.examine(tmp_path), Finding.VARIANT_UNSUPPORTED, "lora_embedding_A")


@pytest.mark.parametrize(
    ("keys", "code", "words"),
    [
        (["lora_unet_a.lora_down.weight", "lora_unet_a.lora_up.weight"], Finding.FORMAT_KOHYA, "lora_down is lora_A"),
        (["unet.mid.attn.to_k.lora_A.weight", "unet.mid.attn.to_k.lora_B.weight"], Finding.FORMAT_DIFFUSERS, "PEFT"),
        (["mid.attn.to_k.lora.down.weight", "mid.attn.to_k.lora.up.weight"], Finding.FORMAT_DIFFUSERS, "PEFT"),
        (["model.layers.0.q_proj.lora_a", "model.layers.0.q_proj.lora_b"], Finding.FORMAT_MLX, "transposed"),
    ],
)
@pytest.mark.parametrize("with_config", [True, False])
def test_formats_of_other_tools(tmp_path: Path, keys: list[str], code: Finding, words: str, with_config: bool) -> None:
    upload = adapter(safetensors_bytes({key: stored(np.ones((4, 4))) for key in keys}))
    if not with_config:
        del upload.files["adapter_config.json"]
    refusal(upload.examine(tmp_path), code, words, "2 of 2 keys")


def test_two_adapters_in_one_file(tmp_path: Path) -> None:
    tensors = lora(paths("query"), infix=".first") | lora(paths("value"), infix=".second")
    refusal(adapter(tensors).examine(tmp_path), Finding.SEVERAL_ADAPTERS, "first", "second")


def test_whole_model_under_the_adapters_name(tmp_path: Path) -> None:
    data = safetensors_bytes({"encoder.layer.0.attention.self.query.weight": stored(np.ones((64, 64)))})
    refusal(adapter(data).examine(tmp_path), Finding.FULL_MODEL, "query.weight")


def test_no_tensor_at_all(tmp_path: Path) -> None:
    reply = adapter(safetensors_bytes({}, {"format": "pt"})).examine(tmp_path)
    refusal(reply, Finding.ADAPTER_INERT)
