"""The files that sentence-transformers writes beside a model: pooling, layers, prompts, limits."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from wire.errors import Code, ShoalError
from workers.models.pooling import MODES, Dense, Normalize, PoolingRule

_LEGACY_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_LENGTH_FILES = ("sentence_bert_config.json", "sentence_roberta_config.json", "sentence_xlm-roberta_config.json")
_NO_LIMIT_TOKENS = 10_000_000
"""Tokenizers without a limit are saved with a number beyond any."""
_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    name: getattr(nn, name) for name in ("Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid")
}


@dataclass(frozen=True, slots=True)
class SentenceSettings:
    """What the files say; without ``modules.json`` it is mean pooling alone. ``max_tokens`` is the length the model's
    authors set, if they did; ``lower`` texts are put into lower case first."""

    rule: PoolingRule = field(default_factory=PoolingRule)
    max_tokens: int | None = None
    lower: bool = False
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None

    def dimension(self, hidden: int) -> int:
        """Values per vector over states of ``hidden`` values."""
        device = next((weight.device for layer in self.rule.layers for weight in layer.parameters()), None)
        sample = torch.zeros((1, 1, hidden), device=device)
        return self.rule.apply(sample, torch.ones((1, 1), device=device)).shape[1]

    def prompt(self, name: str | None, input_type: str | None = None) -> str:
        """The text to put before each input. Raises ``ShoalError(INVALID_REQUEST)`` for a name that is not there;
        ``input_type`` is a wish that a model without such a prompt need not grant."""
        wished = (input_type, "passage" if input_type == "document" else None)
        wanted = name or next((each for each in wished if each in self.prompts), None) or self.default_prompt
        if wanted is None:
            return ""
        if wanted not in self.prompts:
            raise ShoalError(
                Code.INVALID_REQUEST,
                f"The model has no prompt {wanted!r}; it has {', '.join(sorted(self.prompts)) or 'none'}.",
                param="prompt_name",
            )
        return self.prompts[wanted]


def read_sentence_settings(path: Path) -> SentenceSettings:
    """The settings of a model folder. Raises ``ShoalError(MODEL_UNLOADABLE)`` for what cannot be served faithfully."""
    lengths: dict[str, Any] = next((_read(path / name) for name in _LENGTH_FILES if (path / name).exists()), {})
    settings = _read(path / "config_sentence_transformers.json", missing={})
    prompts = settings.get("prompts") or {}
    return SentenceSettings(
        rule=_read_rule(path),
        max_tokens=_max_tokens(path, lengths),
        lower=lengths.get("do_lower_case") is True,
        prompts={str(name): str(text) for name, text in prompts.items() if isinstance(text, str)},
        default_prompt=settings.get("default_prompt_name"),
    )


def _read_rule(path: Path) -> PoolingRule:
    if not (path / "modules.json").exists():
        return PoolingRule()
    modes: tuple[str, ...] = ("mean",)
    pool_prompt = True
    layers: list[nn.Module] = []
    for entry in _read(path / "modules.json"):
        kind = str(entry.get("type", "")).rpartition(".")[2]
        place = path / str(entry.get("path", ""))
        if kind == "Pooling":
            found = _read(place / "config.json")
            modes, pool_prompt = _modes(path, found), found.get("include_prompt", True) is not False
        elif kind == "Normalize":
            layers.append(Normalize())
        elif kind == "Dense":
            layers.append(_dense(place))
        elif kind == "LayerNorm":
            layers.append(_layer_norm(place))
        elif kind not in ("Transformer", "Dropout"):
            raise _unsupported(path, f"modules.json has the module {kind!r}")
    return PoolingRule(modes, pool_prompt, tuple(layer.requires_grad_(False).eval() for layer in layers))


def _modes(path: Path, settings: dict[str, Any]) -> tuple[str, ...]:
    named = settings.get("pooling_mode")
    if named is None:
        modes = [mode for key, mode in _LEGACY_MODES.items() if settings.get(key) is True]
    else:
        modes = [named] if isinstance(named, str) else list(named)
    if not modes or not MODES.issuperset(modes):
        raise _unsupported(path, f"pooling {' + '.join(map(str, modes)) or 'without a mode'} is unknown")
    return tuple(modes)


def _dense(place: Path) -> nn.Module:
    settings = _read(place / "config.json")
    name = str(settings.get("activation_function") or "torch.nn.Identity").rpartition(".")[2]
    if name not in _ACTIVATIONS:
        raise _unsupported(place, f"its Dense layer has the activation {name!r}")
    tensors = _tensors(place)
    weight = tensors["linear.weight"]
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias="linear.bias" in tensors)
    residual: nn.Module | None = None
    if settings.get("use_residual") is True:
        residual = nn.Identity() if linear.in_features == linear.out_features else _linear(tensors["residual.weight"])
    linear.load_state_dict({key.removeprefix("linear."): tensors[key] for key in tensors if key.startswith("linear.")})
    return Dense(linear, _ACTIVATIONS[name](), residual)


def _linear(weight: torch.Tensor) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    linear.load_state_dict({"weight": weight})
    return linear


def _layer_norm(place: Path) -> nn.Module:
    tensors = _tensors(place)
    norm = nn.LayerNorm(tensors["norm.weight"].shape[0])
    norm.load_state_dict({key.removeprefix("norm."): tensor for key, tensor in tensors.items()})
    return norm


def _tensors(place: Path) -> dict[str, torch.Tensor]:
    """The layer's weights in float32."""
    try:
        if (place / "model.safetensors").exists():
            found = load_file(place / "model.safetensors")
        else:
            found = torch.load(place / "pytorch_model.bin", map_location="cpu", weights_only=True)
    except (OSError, SafetensorError, RuntimeError, ValueError) as error:
        raise _unsupported(place, f"its weights cannot be read ({error})") from error
    return {name: tensor.to(torch.float32) for name, tensor in found.items()}


def _max_tokens(path: Path, lengths: dict[str, Any]) -> int | None:
    tokenizer = _read(path / "tokenizer_config.json", missing={})
    for value in (lengths.get("max_seq_length"), tokenizer.get("model_max_length")):
        if isinstance(value, int) and 0 < value < _NO_LIMIT_TOKENS:
            return value
    return None


def _read(path: Path, missing: Any = None) -> Any:
    if missing is not None and not path.exists():
        return missing
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _unsupported(path, f"it cannot be read ({error})") from error


def _unsupported(path: Path, reason: str) -> ShoalError:
    return ShoalError(
        Code.MODEL_UNLOADABLE,
        f"{path}: {reason}.",
        hint="Served are pipelines of Transformer, Pooling, Dense, LayerNorm and Normalize.",
    )
