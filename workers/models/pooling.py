"""How token vectors become one vector, read from the files that sentence-transformers writes beside a
model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from wire.errors import Code, ShoalError

_MODES = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
_SENTENCE_FILES = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_xlm-roberta_config.json",
)


@dataclass(frozen=True, slots=True)
class PoolingRule:
    """``mode`` is ``mean`` or ``cls``. ``max_tokens`` is the length the model's authors set, if they did."""

    mode: str = "mean"
    normalize: bool = False
    max_tokens: int | None = None

    def apply(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Vectors (rows, dimension) of token vectors (rows, tokens, dimension) under a 0/1 mask (rows,
        tokens).
        """
        if self.mode == "cls":
            pooled = hidden[:, 0]
        else:
            weights = mask.unsqueeze(-1).to(hidden.dtype)
            pooled = (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)
        return functional.normalize(pooled, dim=-1) if self.normalize else pooled


def read_pooling(path: Path) -> PoolingRule:
    """The pooling rule of the model directory; mean without normalisation when there is no ``modules.json``.

    Raises ``ShoalError(MODEL_UNLOADABLE)`` for a pipeline that cannot be served faithfully.
    """
    max_tokens = _max_tokens(path)
    pipeline = path / "modules.json"
    if not pipeline.exists():
        return PoolingRule(max_tokens=max_tokens)
    mode, normalize = "mean", False
    for entry in _read_json(pipeline):
        kind = str(entry.get("type", "")).rpartition(".")[2]
        if kind == "Transformer":
            continue
        if kind == "Pooling":
            mode = _pooling_mode(path / str(entry.get("path", "1_Pooling")) / "config.json")
        elif kind == "Normalize":
            normalize = True
        else:
            raise _unsupported(path, f"modules.json has the module {kind!r}")
    return PoolingRule(mode=mode, normalize=normalize, max_tokens=max_tokens)


def _pooling_mode(path: Path) -> str:
    settings = _read_json(path)
    named = settings.get("pooling_mode")
    if isinstance(named, str):
        chosen = [named]
    else:
        flags = [key for key, value in settings.items() if key.startswith("pooling_mode_") and value is True]
        chosen = [_MODES.get(key, key) for key in flags]
    if len(chosen) != 1 or chosen[0] not in _MODES.values():
        raise _unsupported(path, f"pooling {' + '.join(chosen) or 'without a mode'} is not mean or cls")
    return chosen[0]


def _max_tokens(path: Path) -> int | None:
    for name in _SENTENCE_FILES:
        if (path / name).exists():
            value = _read_json(path / name).get("max_seq_length")
            return value if isinstance(value, int) and value > 0 else None
    return None


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _unsupported(path, f"it cannot be read ({error})") from error


def _unsupported(path: Path, reason: str) -> ShoalError:
    return ShoalError(
        Code.MODEL_UNLOADABLE,
        f"{path}: {reason}.",
        hint="Served are pipelines of Transformer, Pooling (mean or cls) and Normalize.",
    )


def to_mask(lengths: list[int], width: int, device: torch.device) -> Tensor:
    """0/1 mask (rows, width) with the first ``lengths[i]`` columns of row ``i`` set."""
    columns = torch.arange(width)
    return (columns.unsqueeze(0) < torch.tensor(lengths).unsqueeze(1)).to(torch.int64).to(device)
