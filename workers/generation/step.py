"""One step's tokens laid out for a single forward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from workers.generation.attention import Part, SlabStep, Step
from workers.generation.cache import Lease, Slab
from workers.packing.layers import BatchPlan

Planner = Callable[[Sequence[str | None]], tuple[list[int], BatchPlan]]


@dataclass(frozen=True, slots=True)
class Feed:
    """Tokens of one text that this step adds after the ``start`` that its lease holds.

    ``answered``: the last of them is the text's last, so its logits choose the next token.
    """

    lease: Lease
    tokens: Sequence[int]
    start: int
    adapter: str | None
    answered: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """Inputs (1, tokens) in the order of ``plan``. ``heads`` are the places whose logits are wanted, in that order too,
    with ``head_plan`` for them; ``answers[i]`` is the feed that row ``i`` of the logits is for."""

    ids: Tensor
    places: Tensor
    step: Step
    plan: BatchPlan
    heads: Tensor
    head_plan: BatchPlan
    answers: list[int]


def lay_out(feeds: Sequence[Feed], planner: Planner, device: torch.device) -> Layout:
    """The layout of a step; each lease must have room for its feed."""
    owners = [number for number, feed in enumerate(feeds) for _ in feed.tokens]
    order, plan = planner([feeds[number].adapter for number in owners])
    flat = [token for feed in feeds for token in feed.tokens]
    places = [feed.start + offset for feed in feeds for offset in range(len(feed.tokens))]
    # rows of one adapter keep their order, so tokens of a text stay neighbours
    begins: dict[int, int] = {}
    for place, source in enumerate(order):
        begins.setdefault(owners[source], place)
    answers = sorted((number for number, feed in enumerate(feeds) if feed.answered), key=begins.__getitem__)
    # a step of nothing but first parts of prompts wants no logits; a head over no rows is more trouble than one row
    asked = answers or [owners[order[-1]]]
    heads = [begins[number] + len(feeds[number].tokens) - 1 for number in asked]
    _, head_plan = planner([feeds[number].adapter for number in asked])
    return Layout(
        ids=torch.tensor([[flat[source] for source in order]], device=device),
        places=torch.tensor([[places[source] for source in order]], device=device),
        step=Step(_slab_steps(feeds, begins, device)),
        plan=plan,
        heads=torch.tensor(heads, dtype=torch.int64, device=device),
        head_plan=head_plan,
        answers=answers,
    )


def _slab_steps(feeds: Sequence[Feed], begins: dict[int, int], device: torch.device) -> list[SlabStep]:
    slabs: dict[int, tuple[Slab, list[int]]] = {}
    for number, feed in enumerate(feeds):
        slabs.setdefault(id(feed.lease.slab), (feed.lease.slab, []))[1].append(number)
    steps = []
    for slab, numbers in slabs.values():
        numbers.sort(key=lambda number: feeds[number].lease.row)
        fed = [(number, offset) for number in numbers for offset in range(len(feeds[number].tokens))]
        steps.append(
            SlabStep(
                slab=slab,
                tokens=torch.tensor([begins[number] + offset for number, offset in fed], device=device),
                rows=torch.tensor([feeds[number].lease.row for number, _ in fed], device=device),
                places=torch.tensor([feeds[number].start + offset for number, offset in fed], device=device),
                parts=[_part(run, feeds, begins, device) for run in _runs(numbers, feeds)],
            )
        )
    return steps


def _runs(numbers: Sequence[int], feeds: Sequence[Feed]) -> list[list[int]]:
    """Feeds in order of rows, cut into runs of neighbouring rows that add equally many tokens."""

    def run(item: tuple[int, int]) -> tuple[int, int]:
        position, number = item
        return feeds[number].lease.row - position, len(feeds[number].tokens)

    return [[number for _, number in items] for _, items in groupby(enumerate(numbers), key=run)]


def _part(run: Sequence[int], feeds: Sequence[Feed], begins: dict[int, int], device: torch.device) -> Part:
    first = feeds[run[0]]
    length = len(first.tokens)
    ends = [feeds[number].start + length for number in run]
    return Part(
        start=first.lease.row,
        stop=first.lease.row + len(run),
        length=length,
        width=max(ends),
        tokens=torch.tensor([begins[number] + offset for number in run for offset in range(length)], device=device),
        ends=torch.tensor(ends, device=device),
    )
