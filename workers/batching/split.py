"""Splitting a batch into forward passes of rows of like length, when that saves more padding than a pass costs."""

from __future__ import annotations

from collections.abc import Sequence

from workers.batching.cost import Cost


def split_by_length(lengths: Sequence[int], cost: Cost, *, max_tokens: int) -> list[list[int]]:
    """Row numbers of each forward pass: the cheapest split of the rows in order of length.

    Exact by dynamic programming over distinct lengths, with ``cost.fixed_s`` per pass and ``cost.token_s`` per padded
    token. No pass is above ``max_tokens`` padded tokens unless it is a single row.
    """
    order = sorted(range(len(lengths)), key=lambda row: lengths[row])
    edges = [number for number in range(len(order)) if number == 0 or _new(order, lengths, number)]
    edges.append(len(order))
    best = [0.0] * len(edges)
    came = [0] * len(edges)
    for stop in range(1, len(edges)):
        width = lengths[order[edges[stop] - 1]]
        best[stop] = float("inf")
        for start in range(stop - 1, -1, -1):
            padded = width * (edges[stop] - edges[start])
            total = best[start] + cost.seconds(padded)
            if total < best[stop]:
                best[stop], came[stop] = total, start
            if padded > max_tokens:
                break
    passes: list[list[int]] = []
    stop = len(edges) - 1
    while stop > 0:
        rows = order[edges[came[stop]] : edges[stop]]
        passes.extend(_cut(rows, lengths, max_tokens))
        stop = came[stop]
    return passes[::-1]


def _new(order: Sequence[int], lengths: Sequence[int], number: int) -> bool:
    return lengths[order[number]] != lengths[order[number - 1]]


def _cut(rows: list[int], lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    size = max(1, max_tokens // max(1, lengths[rows[-1]]))
    return [rows[start : start + size] for start in range(0, len(rows), size)]
