"""Reads adapter_config.json: typed fields, what is unknown, and nothing believed that the tensors can tell."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from loras.validation.findings import Refused, clipped, failed, shown
from wire.reports import Finding

CHECK = "Configuration"
MAX_CONFIG_BYTES = 4 * 1024 * 1024
# PEFT's own defaults (LoraConfig)
DEFAULT_ALPHA = 8.0

# fmt: off
_KNOWN = frozenset({
    "alora_invocation_tokens", "alpha_pattern", "arrow_config", "auto_mapping", "base_model_class",
    "base_model_name_or_path", "bias", "corda_config", "ensure_weight_tying", "eva_config",
    "exclude_modules", "fan_in_fan_out", "inference_mode", "init_lora_weights", "kasa_config",
    "layer_replication", "layers_pattern", "layers_to_transform", "loftq_config", "lora_alpha",
    "lora_bias", "lora_dropout", "lora_ga_config", "megatron_config", "megatron_core", "modules_to_save",
    "monteclora_config", "parent_library", "peft_type", "peft_version", "qalora_group_size", "r",
    "rank_pattern", "revision", "runtime_config", "target_modules", "target_parameters", "task_type",
    "trainable_token_indices", "use_bdlora", "use_dora", "use_qalora", "use_rslora", "velora_config",
})
# fmt: on

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Configuration:
    """Fields that matter here. ``raw`` is all of it, for the checks on variants; ``unknown`` are keys that this
    PEFT does not have. ``rank`` is ``None`` when the file has no ``r``."""

    peft_type: str
    task_type: str
    base_model: str
    rank: int | None
    alpha: float
    alpha_given: bool
    rslora: bool
    rank_pattern: dict[str, int]
    alpha_pattern: dict[str, float]
    target_modules: str | tuple[str, ...] | None
    layers: tuple[int, ...] | None
    layers_pattern: tuple[str, ...]
    modules_to_save: tuple[str, ...]
    unknown: tuple[str, ...]
    raw: Json

    def pattern_rank(self, module: str) -> int | None:
        """Rank that PEFT gives ``module`` (peft.utils.other.get_pattern_key), ``None`` without an ``r``."""
        return self.rank_pattern.get(_pattern_key(self.rank_pattern, module), self.rank)

    def pattern_alpha(self, module: str) -> float:
        """Alpha that PEFT gives ``module``."""
        return self.alpha_pattern.get(_pattern_key(self.alpha_pattern, module), self.alpha)

    def scale(self, module: str, rank: int) -> float:
        """``alpha / r``, or ``alpha / sqrt(r)`` with rsLoRA (arXiv:2312.03732)."""
        return self.pattern_alpha(module) / (math.sqrt(rank) if self.rslora else rank)


def read_configuration(path: Path) -> Configuration:
    """The typed configuration. Raises ``Refused`` (CONFIG_INVALID) naming the field.

    Of another kind of adapter than LoRA the kind alone is read: fields of the same name mean other things there.
    """
    raw = _parse(path)
    peft_type = _text(raw, "peft_type")
    if peft_type.upper() not in ("", "LORA"):
        return replace(_typed({}), peft_type=peft_type)
    return _typed(raw)


def _typed(raw: Json) -> Configuration:
    rank = _number(raw, "r")
    if rank is not None and rank != int(rank):
        raise _invalid(f"r is {rank}, not a whole number")
    alpha = _number(raw, "lora_alpha")
    rank_pattern = _pattern(raw, "rank_pattern")
    for key, value in rank_pattern.items():
        if value != int(value):
            raise _invalid(f"rank_pattern[{clipped(key)!r}] is {value}, not a whole number")
    return Configuration(
        peft_type=_text(raw, "peft_type"),
        task_type=_text(raw, "task_type"),
        base_model=_text(raw, "base_model_name_or_path"),
        rank=None if rank is None else int(rank),
        alpha=DEFAULT_ALPHA if alpha is None else alpha,
        alpha_given=alpha is not None,
        rslora=_flag(raw, "use_rslora"),
        rank_pattern={key: int(value) for key, value in rank_pattern.items()},
        alpha_pattern=_pattern(raw, "alpha_pattern"),
        target_modules=_target_modules(raw),
        layers=_layers(raw),
        layers_pattern=_layers_pattern(raw),
        modules_to_save=_texts(raw, "modules_to_save"),
        unknown=tuple(sorted(set(raw) - _KNOWN)),
        raw=raw,
    )


def _parse(path: Path) -> Json:
    size = path.stat().st_size
    if size == 0:
        raise _invalid("the file is empty")
    if size > MAX_CONFIG_BYTES:
        raise _invalid(f"the file has {size} bytes (limit {MAX_CONFIG_BYTES})")
    try:
        parsed = json.loads(path.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise _invalid(f"it is not JSON ({clipped(str(error))})") from error
    if not isinstance(parsed, dict):
        raise _invalid(f"it holds a {type(parsed).__name__} where an object has to be")
    return cast(Json, parsed)


def pattern_expression(key: str) -> str:
    """What PEFT makes of a key of ``rank_pattern`` or ``alpha_pattern``."""
    return rf"(.*\.)?({key})$"


def layer_expression(pattern: str) -> str:
    """What PEFT makes of a text of ``layers_pattern``."""
    return rf"(?:^|.*?\.){pattern}\.(?P<layer>\d+)\."


def _layers_pattern(raw: Json) -> tuple[str, ...]:
    patterns = _texts(raw, "layers_pattern")
    for pattern in patterns:
        _compiles("layers_pattern", pattern, layer_expression(pattern))
    return patterns


def _pattern_key(patterns: dict[str, int] | dict[str, float], module: str) -> str:
    for key in patterns:
        if re.match(pattern_expression(key), module):
            return key
    return module


def _number(raw: Json, key: str) -> float | None:
    value = raw.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e9 or value != value:
        raise _invalid(f"{key} is {shown(value)}, not a number")
    return float(value)


def _flag(raw: Json, key: str) -> bool:
    value = raw.get(key)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise _invalid(f"{key} is {shown(value)}, neither true nor false")


def _text(raw: Json, key: str) -> str:
    value = raw.get(key)
    if value is None or isinstance(value, str):
        return value or ""
    raise _invalid(f"{key} is {shown(value)}, not a text")


def _texts(raw: Json, key: str) -> tuple[str, ...]:
    value = raw.get(key)
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(cast(list[str], value))
    raise _invalid(f"{key} is {shown(value)}, not a list of texts")


def _target_modules(raw: Json) -> str | tuple[str, ...] | None:
    value = raw.get("target_modules")
    if isinstance(value, str):
        if value != "all-linear":
            _compiles("target_modules", value, value)
        return value
    return _texts(raw, "target_modules") or None


def _pattern(raw: Json, key: str) -> dict[str, float]:
    value = raw.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _invalid(f"{key} is {shown(value)}, not an object")
    pattern: dict[str, float] = {}
    for name in value:
        number = _number(cast(Json, value), name)
        if number is None:
            raise _invalid(f"{key}[{clipped(name)!r}] is null")
        _compiles(key, name, pattern_expression(name))
        pattern[name] = number
    return pattern


def _layers(raw: Json) -> tuple[int, ...] | None:
    value = raw.get("layers_to_transform")
    if value is None or value == []:
        return None
    layers = value if isinstance(value, list) else [value]
    if not all(isinstance(layer, int) and not isinstance(layer, bool) for layer in layers):
        raise _invalid(f"layers_to_transform is {shown(value)}, not layer numbers")
    return tuple(layers)


def _compiles(key: str, pattern: str, expression: str) -> None:
    """Refuse a ``pattern`` that does not compile in the ``expression`` it is used in."""
    try:
        re.compile(expression)
    except (re.error, RecursionError, OverflowError) as error:
        raise _invalid(f"{key} has {clipped(pattern)!r}, which is no regular expression ({error})") from error


def _invalid(found: str) -> Refused:
    todo = "Use the adapter_config.json that PEFT wrote when the adapter was saved."
    return Refused(failed(CHECK, Finding.CONFIG_INVALID, f"adapter_config.json: {found}.", todo))
