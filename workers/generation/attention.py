"""Attention of one step over the cache's slots, for any model that calls transformers' attention interface.

All tokens of a step are one row (1, heads, tokens, size), those of one text side by side. Each layer writes its keys
and values to the texts' rows; then neighbouring rows that add equally many tokens, mostly one, are answered with one
call. Query heads that share a key head (grouped-query attention, arXiv:2305.13245)
become query positions, so keys and values are read once and never repeated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from workers.generation.cache import LayerShape, Slab

ATTENTION = "shoal_slots"
STEP = "shoal_step"


@dataclass(slots=True, eq=False)
class Part:
    """Texts of one slab that are answered together: rows ``start`` to ``stop``, of which ``width`` tokens are read.

    ``tokens`` are places in the step, ``(stop - start) * length`` of them, where ``length`` is how many each text
    adds. ``ends`` counts each text's tokens with those of the step.
    """

    start: int
    stop: int
    length: int
    width: int
    tokens: Tensor
    ends: Tensor
    masks: dict[tuple[int, int | None, torch.dtype], Tensor | None] = field(default_factory=dict)

    def mask(self, group: int, window: int | None, dtype: torch.dtype) -> Tensor | None:
        """What each query may see, as a number to add (rows, 1, group · length, width); the same for all layers."""
        key = (group, window, dtype)
        if key not in self.masks:
            self.masks[key] = self._mask(group, window, dtype)
        return self.masks[key]

    def _mask(self, group: int, window: int | None, dtype: torch.dtype) -> Tensor | None:
        device = self.ends.device
        places = self.ends[:, None] - self.length + torch.arange(self.length, device=device)
        keys = torch.arange(self.width, device=device)
        seen = keys <= places[..., None]
        if window is not None:
            seen &= keys > places[..., None] - window
        if bool(seen.all()):
            return None
        mask = torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(~seen, -torch.inf)
        return mask.repeat(1, group, 1)[:, None]


@dataclass(frozen=True, slots=True)
class SlabStep:
    """What one step does with a slab: where its new tokens go, and which texts are answered together."""

    slab: Slab
    tokens: Tensor
    rows: Tensor
    places: Tensor
    parts: list[Part]


@dataclass(slots=True)
class Step:
    """One forward pass, as its attention layers see it. ``shapes`` is filled instead when a model is measured."""

    slabs: list[SlabStep]
    shapes: dict[int, LayerShape] | None = None


def slot_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Transformers' attention interface. Outside of a step it is the plain one."""
    step: Step | None = kwargs.pop(STEP, None)
    if step is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, softcap=softcap, **kwargs
        )
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    if step.shapes is not None:
        step.shapes[layer] = LayerShape(heads=key.shape[1], key_size=key.shape[3], value_size=value.shape[3])
        return sdpa_attention_forward(module, query, key, value, None, scaling=scaling)
    output = query.new_empty((query.shape[2], query.shape[1], value.shape[3]))
    for one in step.slabs:
        keys, values = one.slab.keys[layer], one.slab.values[layer]
        keys[one.rows, :, one.places] = key[0].index_select(1, one.tokens).transpose(0, 1)
        values[one.rows, :, one.places] = value[0].index_select(1, one.tokens).transpose(0, 1)
        for part in one.parts:
            rows = slice(part.start, part.stop)
            picked = query[0].index_select(1, part.tokens)
            read = (keys[rows, :, : part.width], values[rows, :, : part.width])
            found = _attend(picked, *read, part, scaling, window=sliding_window, softcap=softcap)
            output.index_copy_(0, part.tokens, found)
    return output[None], None


def _attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    part: Part,
    scaling: float | None,
    *,
    window: int | None,
    softcap: float | None,
) -> Tensor:
    """(heads, rows · length, size) over (rows, key heads, width, size): (rows · length, heads, value size)."""
    count, key_heads = keys.shape[:2]
    group = query.shape[0] // key_heads
    picked = query.view(key_heads, group, count, part.length, -1).permute(2, 0, 1, 3, 4)
    picked = picked.reshape(count, key_heads, group * part.length, -1)
    mask = part.mask(group, window, query.dtype)
    if softcap is None:
        found = functional.scaled_dot_product_attention(picked, keys, values, attn_mask=mask, scale=scaling)
    else:
        scores = torch.matmul(picked, keys.transpose(2, 3)) * (scaling or picked.shape[-1] ** -0.5)
        scores = torch.tanh(scores / softcap) * softcap
        weights = torch.softmax((scores if mask is None else scores + mask).float(), dim=-1)
        found = torch.matmul(weights.to(values.dtype), values)
    found = found.view(count, key_heads, group, part.length, -1).permute(0, 3, 1, 2, 4)
    return found.reshape(count * part.length, key_heads * group, -1)


AttentionInterface.register(ATTENTION, slot_attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
