"""Ordering the rows of a batch so that rows of one rank bucket, and of one adapter, are neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch

from workers.packing.layers import BatchPlan, Group, Segment


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a resident adapter's weights are: rank bucket and index in the bucket's banks."""

    bucket: int
    index: int


def order_rows(
    adapters: Sequence[str | None], places: Mapping[str, Place], device: torch.device
) -> tuple[list[int], BatchPlan]:
    """The order to run rows in (row numbers of ``adapters``) and the plan for that order.

    Neighbours need no gathering: a segment is a view of the batch. Base rows come last and cost nothing.
    Raises ``KeyError`` when a named adapter is not resident.
    """
    placed = sorted((places[name], row) for row, name in enumerate(adapters) if name is not None)
    order = [row for _, row in placed] + [row for row, name in enumerate(adapters) if name is None]
    segments: list[Segment] = []
    start = 0
    for bucket, members in groupby((place for place, _ in placed), key=lambda place: place.bucket):
        indices = [place.index for place in members]
        segments.append(_segment(bucket, start, indices, device))
        start += len(indices)
    return order, BatchPlan(rows=len(adapters), segments=tuple(segments))


def _segment(bucket: int, start: int, indices: list[int], device: torch.device) -> Segment:
    groups: list[Group] = []
    position = start
    for index, same in groupby(indices):
        count = sum(1 for _ in same)
        groups.append(Group(position, position + count, index))
        position += count
    return Segment(
        bucket=bucket,
        start=start,
        stop=start + len(indices),
        groups=tuple(groups),
        distinct=frozenset(indices),
        indices=torch.tensor(indices, dtype=torch.int64, device=device),
    )
