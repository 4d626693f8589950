"""A fine-tune's config.json: one of the architectures that workers know, in a size that can be built."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from loras.validation.files.vocabulary import read_object
from loras.validation.findings import Refused, clipped, failed, passed, shown, some
from wire.reports import Finding, Row

CHECK = "Architecture"
FAMILIES = (
    "bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert", "mpnet", "modernbert", "deberta-v2", "t5",
    "llama", "mistral", "qwen2", "qwen3", "gemma", "phi", "gpt2",
)  # fmt: skip
_ENDINGS = (
    "Model", "ForMaskedLM", "ForCausalLM", "LMHeadModel", "ForSequenceClassification", "ForTokenClassification",
    "ForPreTraining",
)  # fmt: skip
_MAX_CONFIG_BYTES = 4 << 20
# the largest of these families has a third of each
_LARGEST = {
    "vocab_size": 2_000_000,
    "hidden_size": 32_768, "n_embd": 32_768, "dim": 32_768, "d_model": 32_768,
    "num_hidden_layers": 256, "n_layer": 256, "n_layers": 256, "num_layers": 256, "num_decoder_layers": 256,
    "num_attention_heads": 1_024, "n_head": 1_024, "n_heads": 1_024, "num_heads": 1_024,
    "num_key_value_heads": 1_024, "head_dim": 4_096, "d_kv": 4_096,
    "intermediate_size": 262_144, "n_inner": 262_144, "hidden_dim": 262_144, "d_ff": 262_144,
    "max_position_embeddings": 16_777_216, "n_positions": 16_777_216, "type_vocab_size": 1_024, "num_labels": 10_000,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Architecture:
    """The configuration as read, its ``model_type`` and the name of its first class ("" where it names none)."""

    raw: dict[str, object]
    family: str
    name: str


def read_architecture(config: Path) -> Architecture:
    """The configuration of a whole model. Raises ``Refused`` (CONFIG_INVALID)."""
    raw = read_object(config, limit_bytes=_MAX_CONFIG_BYTES)
    if not raw:
        what = f"config.json ({config.stat().st_size} bytes) is no JSON object with a model's configuration."
        raise Refused(_invalid(what))
    names, family = raw.get("architectures"), raw.get("model_type")
    first = names[0] if isinstance(names, list) and names else ""
    if not isinstance(family, str) or not isinstance(first, str):
        what = f"config.json has model_type {shown(family)} and architectures {shown(names)}."
        raise Refused(_invalid(what))
    return Architecture(raw, family, first)


def check_family(found: Architecture) -> list[Row]:
    """The allow-list: nothing outside of it is ever built."""
    if found.family not in FAMILIES:
        what = f"model_type is {clipped(found.family) or 'absent'} ({clipped(found.name) or 'no class named'})."
        todo = f"Served families are: {', '.join(FAMILIES)}."
        return [failed(CHECK, Finding.ARCHITECTURE_UNSUPPORTED, what, todo)]
    if found.name and not found.name.endswith(_ENDINGS):
        what = f"The class {clipped(found.name)} of {found.family} has an output that is not served."
        todo = f"Served are classes that end in: {', '.join(_ENDINGS)}."
        return [failed(CHECK, Finding.ARCHITECTURE_UNSUPPORTED, what, todo)]
    return [passed(CHECK, f"{found.name or 'the plain model'} ({found.family})")]


def check_quantization(found: Architecture) -> list[Row]:
    """Quantized weights need kernels of their own."""
    quantized = found.raw.get("quantization_config")
    if not quantized:
        return []
    method = quantized.get("quant_method") if isinstance(quantized, dict) else quantized
    what = f"The weights are quantized (quantization_config: {shown(method)})."
    todo = "Upload the model in float32, float16 or bfloat16; merge an adapter into unquantized weights."
    return [failed(CHECK, Finding.DTYPE_UNSUPPORTED, what, todo)]


def check_sizes(found: Architecture) -> list[Row]:
    """Sizes are whole, positive, and not beyond what any of these families has."""
    odd = []
    for key, largest in _LARGEST.items():
        value = found.raw.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= largest:
            odd.append(f"{key} is {shown(value)} (0 to {largest:,})")
    labels = found.raw.get("id2label")
    if isinstance(labels, dict) and len(labels) > _LARGEST["num_labels"]:
        odd.append(f"id2label has {len(labels)} entries (limit {_LARGEST['num_labels']:,})")
    return [_invalid(f"config.json has {len(odd)} sizes that cannot be: {some(odd)}.")] if odd else []


def _invalid(what: str) -> Row:
    todo = "Upload the config.json that save_pretrained wrote beside these weights."
    return failed("Configuration", Finding.CONFIG_INVALID, what, todo)


ARCHITECTURE_CHECKS = (check_family, check_quantization, check_sizes)
