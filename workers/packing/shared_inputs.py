"""Linear layers that some families also apply to one tensor shared by all rows of a batch.

DeBERTa projects its relative positions, which no row owns, with the layers that it projects rows with: an adapter on
those gives each row its own positions. There the attention's bias is computed once per adapter of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from workers.packing.layers import BatchPlan, Group, PackedLinear, PlanHolder, Segment


def split_shared_inputs(module: nn.Module, holder: PlanHolder) -> None:
    """Let the attention layers below ``module`` that share inputs see one adapter at a time. Their linear layers are
    packed already."""
    from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention

    for layer in module.modules():
        if isinstance(layer, DisentangledSelfAttention):
            packed = [child for child in layer.children() if isinstance(child, PackedLinear)]
            layer.disentangled_attention_bias = partial(_bias, layer, packed, holder)  # type: ignore[method-assign]


def _bias(
    attention: Any, packed: Sequence[PackedLinear], holder: PlanHolder, query: Tensor, key: Tensor, *shared: Any
) -> Tensor:
    """The bias (rows · heads, tokens, tokens) that the layer adds to its scores."""
    bias = type(attention).disentangled_attention_bias
    plan = holder.plan
    heads: int = attention.num_attention_heads
    parts = []
    try:
        for start, stop, one in _parts(plan, packed):
            rows = slice(start * heads, stop * heads)
            holder.plan = one
            parts.append(bias(attention, query[rows], key[rows], *shared))
    finally:
        holder.plan = plan
    return torch.cat(parts) if parts else bias(attention, query, key, *shared)


def _parts(plan: BatchPlan | None, packed: Sequence[PackedLinear]) -> Iterator[tuple[int, int, BatchPlan | None]]:
    """(start, stop, plan of a single row) for neighbouring rows that project alike."""
    if plan is None:
        return
    start = 0
    for segment in plan.segments:
        for group in segment.groups:
            if any(
                group.index in layer.banks[segment.bucket].used for layer in packed if segment.bucket in layer.banks
            ):
                if start < group.start:
                    yield start, group.start, None
                yield group.start, group.stop, _one_row(segment, group)
                start = group.stop
    if start < plan.rows:
        yield start, plan.rows, None


def _one_row(segment: Segment, group: Group) -> BatchPlan:
    return BatchPlan(
        rows=1,
        segments=(
            Segment(
                bucket=segment.bucket,
                start=0,
                stop=1,
                groups=(Group(0, 1, group.index),),
                distinct=frozenset((group.index,)),
                indices=segment.indices.new_tensor([group.index]),
            ),
        ),
    )
