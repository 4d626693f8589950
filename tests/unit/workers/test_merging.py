"""Merged weights answer as PEFT does: LoRA, DoRA, biases, whole saved modules, tied heads, transposed layers."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor

from tests.unit.workers.versions import canonical_of, write_canonical
from wire.errors import Code, ShoalError
from workers.merging import apply_artifact
from workers.packing.artifact import read_artifact

IDS = torch.tensor([[2, 5, 6, 7, 3], [2, 9, 10, 11, 3]])


def bert() -> Any:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    return BertModel(BertConfig(vocab_size=20, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                intermediate_size=64, max_position_embeddings=40)).train(False)  # fmt: skip


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(vocab_size=20, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                        num_key_value_heads=2, intermediate_size=64, max_position_embeddings=40,
                                        tie_word_embeddings=True, bos_token_id=2, eos_token_id=3,
                                        pad_token_id=0)).train(False)  # fmt: skip


def gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=32, n_layer=2, n_head=4, n_positions=40, bos_token_id=2,
                                      eos_token_id=3)).train(False)  # fmt: skip


def trained(base: Any, **settings: Any) -> Any:
    """PEFT's model over a copy of ``base``, every trainable number moved away from its start."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = get_peft_model(copy.deepcopy(base), LoraConfig(r=4, lora_alpha=8, **settings))
    torch.manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "magnitude" in name:
                parameter.mul_(1 + 0.2 * torch.rand_like(parameter))
            elif parameter.requires_grad or "modules_to_save" in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def output(model: Any) -> Tensor:
    with torch.inference_mode():
        found: Tensor = model(input_ids=IDS)[0]
    return found


@pytest.mark.parametrize(
    ("build", "settings"),
    [
        (bert, {"target_modules": ["query", "value", "dense"]}),
        (bert, {"target_modules": ["query", "value"], "use_rslora": True, "rank_pattern": {"query": 2}}),
        (bert, {"target_modules": ["query", "intermediate.dense"], "use_dora": True}),
        (bert, {"target_modules": ["value", "dense"], "bias": "lora_only"}),
        (bert, {"target_modules": ["query"], "bias": "all"}),
        (bert, {"target_modules": ["query"], "modules_to_save": ["word_embeddings", "pooler"]}),
        (llama, {"target_modules": ["q_proj", "down_proj"], "modules_to_save": ["lm_head"]}),
        (llama, {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]}),
        (gpt2, {"target_modules": ["c_attn"], "fan_in_fan_out": True, "use_dora": True}),
    ],
    ids=["lora", "rslora", "dora", "bias-lora", "bias-all", "saved", "tied-head", "tied-embedding", "conv1d-dora"],
)
@pytest.mark.filterwarnings("ignore")
def test_merged_weights_answer_as_peft_does(tmp_path: Path, build: Any, settings: dict[str, Any]) -> None:
    base = build()
    before = output(base)
    peft = trained(base, **settings)
    path = write_canonical(tmp_path, *canonical_of(peft))
    apply_artifact(base, read_artifact(path), base_digest="")
    expected = output(peft)
    assert float((expected - before).abs().max()) > 1e-2, "the test's adapter does nothing"
    assert float((output(base) - expected).abs().max()) < 1e-4


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"base_digest": "1" * 64}, "111111111111"),
        ({"rename": ("query", "qery")}, "qery"),
        ({"drop": ".lora_magnitude"}, "magnitudes"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_does_not_fit_is_named_and_changes_nothing(tmp_path: Path, change: dict[str, Any], names: str) -> None:
    base = bert()
    before = output(base)
    tensors, header = canonical_of(trained(base, target_modules=["query", "key"], use_dora=True))
    path = write_canonical(tmp_path, tensors, header, **change)
    with pytest.raises(ShoalError, match=names) as raised:
        apply_artifact(base, read_artifact(path), base_digest="2" * 64)
    assert raised.value.info.code is Code.ADAPTER_UNLOADABLE
    assert torch.equal(output(base), before)
