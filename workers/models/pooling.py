"""How token vectors become one vector: the pooling and the layers behind it of sentence-transformers' files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

_LEAST = 1e-9


class Normalize(nn.Module):
    """Vectors of length 1."""

    def forward(self, vectors: Tensor) -> Tensor:
        return functional.normalize(vectors, dim=-1)


class Dense(nn.Module):
    """A linear layer with an activation, and with a residual connection where the model was saved with one."""

    def __init__(self, linear: nn.Linear, activation: nn.Module, residual: nn.Module | None) -> None:
        super().__init__()
        self.linear = linear
        self.activation = activation
        self.residual = residual

    def forward(self, vectors: Tensor) -> Tensor:
        found: Tensor = self.activation(self.linear(vectors))
        return found if self.residual is None else found + self.residual(vectors)


@dataclass(frozen=True, slots=True)
class PoolingRule:
    """``modes`` are those of sentence-transformers; several are concatenated. ``layers`` follow, in order."""

    modes: tuple[str, ...] = ("mean",)
    pool_prompt: bool = True
    layers: tuple[nn.Module, ...] = ()

    def apply(self, hidden: Tensor, mask: Tensor, prompt_tokens: Sequence[int] = ()) -> Tensor:
        """Vectors (rows, dimension) of token vectors (rows, tokens, dimension) under a 0/1 mask (rows, tokens) whose
        rows begin with ones. ``prompt_tokens[i]`` tokens at the start of row ``i`` are left out.
        """
        # sums of many bfloat16 numbers would lose what the numbers themselves keep
        hidden = hidden.to(torch.float32)
        pooled = mask
        if any(prompt_tokens):
            places = torch.arange(mask.shape[1], device=mask.device)
            starts = torch.tensor(list(prompt_tokens), device=mask.device).unsqueeze(1)
            pooled = mask * (places >= starts)
        vectors = torch.cat([_pool(mode, hidden, pooled) for mode in self.modes], dim=-1)
        for layer in self.layers:
            vectors = layer(vectors)
        return vectors

    def to(self, device: torch.device) -> PoolingRule:
        """The rule with its layers on ``device``."""
        return PoolingRule(self.modes, self.pool_prompt, tuple(layer.to(device) for layer in self.layers))


def _pool(mode: str, hidden: Tensor, mask: Tensor) -> Tensor:
    numbers = torch.arange(hidden.shape[0], device=hidden.device)
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    if mode == "cls":
        return hidden[numbers, mask.to(torch.int32).argmax(dim=1)]
    if mode == "lasttoken":
        places = torch.arange(mask.shape[1], device=mask.device)
        return hidden[numbers, (mask * places).argmax(dim=1)]
    if mode == "max":
        return hidden.masked_fill(weights == 0, float("-inf")).amax(dim=1)
    if mode == "weightedmean":
        weights = weights * torch.arange(1, mask.shape[1] + 1, device=mask.device).to(hidden.dtype).view(1, -1, 1)
    total, count = (hidden * weights).sum(dim=1), weights.sum(dim=1).clamp(min=_LEAST)
    return total / (count.sqrt() if mode == "mean_sqrt_len_tokens" else count)


MODES = frozenset({"cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"})


def to_mask(lengths: list[int], width: int, device: torch.device) -> Tensor:
    """0/1 mask (rows, width) with the first ``lengths[i]`` columns of row ``i`` set."""
    columns = torch.arange(width)
    return (columns.unsqueeze(0) < torch.tensor(lengths).unsqueeze(1)).to(torch.int64).to(device)
