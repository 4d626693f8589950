"""Which rows run in the next batch: fair between tenants and adapters, with a share for every job, within tokens,
adapters and loads, and cut where the most urgent job would be late.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fabric.fairness import TenantShares
from workers.batching.cost import Cost

_SHARES = 4
_STARTED_PART = 2
_LEAST_PART = 4
"""A batch is cut for an urgent job to this part of it and no further: under overload every job is urgent, and batches
that are all small would make all of them late."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A waiting job of the chosen model: token counts of its rows that have not run, in order.

    ``started``: rows of it ran in earlier batches, so it has more than its share holds. ``slack_s``: time to its
    deadline.
    """

    job: str
    lengths: Sequence[int]
    adapter: str | None
    resident: bool
    started: bool = False
    tenant: str = ""
    slack_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Bounds:
    """``adapters`` that may be in the batch together, ``loads`` of cold ones that may happen before it. ``cost`` is
    what a batch is expected to take; without it deadlines change nothing."""

    tokens: int
    adapters: int
    loads: int
    cost: Cost | None = None


def choose_rows(candidates: Sequence[Candidate], bounds: Bounds, shares: TenantShares | None = None) -> dict[str, int]:
    """How many further rows of each job run now, for jobs with at least one; ``candidates`` are in arrival order.

    Jobs are looked at in the order of ``shares``, which is charged with what is chosen. A first round gives each at
    most a quarter of the tokens, and all started jobs together at most half, so that any number of jobs with thousands
    of rows lets later ones in; a second gives what is left in the same order. The first job always gets a row, and who
    gets none moves towards the front, so nobody starves.
    """
    ledger = TenantShares() if shares is None else shares
    ordered = fair_order(candidates, ledger, share_tokens=max(1, bounds.tokens // _SHARES))
    urgent, tokens = _cut(ordered, bounds)
    if urgent is not None:
        ordered = [urgent, *(one for one in ordered if one is not urgent)]
    chosen = _fill(ordered, replace(bounds, tokens=tokens))
    for one in candidates:
        if rows := chosen.get(one.job):
            ledger.charge(one.tenant, one.adapter, sum(one.lengths[:rows]))
    return chosen


def fair_order(candidates: Sequence[Candidate], shares: TenantShares, *, share_tokens: int) -> list[Candidate]:
    """The candidates as their tenants and adapters would take turns, each turn up to ``share_tokens`` of one job."""
    flows: dict[str, dict[str | None, deque[tuple[int, Candidate]]]] = {}
    for at, one in enumerate(candidates):
        flows.setdefault(one.tenant, {}).setdefault(one.adapter, deque()).append((at, one))
    if len(flows) == 1 and len(next(iter(flows.values()))) == 1:
        return list(candidates)
    shares.wait(flows)
    trial = shares.copy()
    tenants: list[tuple[float, int, str]] = []
    adapters: dict[str, list[tuple[float, int, str | None]]] = {}
    for tenant, own in flows.items():
        heads = [(trial.start(tenant, name)[1], flow[0][0], name) for name, flow in own.items()]
        adapters[tenant] = heads
        heapq.heapify(heads)
        tenants.append((trial.start(tenant, None)[0], heads[0][1], tenant))
    heapq.heapify(tenants)
    ordered: list[Candidate] = []
    while tenants:
        tenant = heapq.heappop(tenants)[2]
        heads = adapters[tenant]
        name = heapq.heappop(heads)[2]
        flow = flows[tenant][name]
        one = flow.popleft()[1]
        ordered.append(one)
        trial.charge(tenant, name, min(share_tokens, sum(one.lengths)))
        if flow:
            heapq.heappush(heads, (trial.start(tenant, name)[1], flow[0][0], name))
        if heads:
            heapq.heappush(tenants, (trial.start(tenant, None)[0], heads[0][1], tenant))
    return ordered


def _cut(ordered: Sequence[Candidate], bounds: Bounds) -> tuple[Candidate | None, int]:
    """The job whose deadline a full batch would miss and a smaller one would not, and the tokens of that one."""
    cost = bounds.cost
    if cost is None:
        return None, bounds.tokens
    full_s = cost.seconds(bounds.tokens, bounds.adapters)
    least_s = cost.seconds(bounds.tokens // _LEAST_PART, 0)
    urgent = [
        one for one in ordered if least_s <= one.slack_s < full_s and cost.seconds(sum(one.lengths)) < one.slack_s
    ]
    if not urgent:
        return None, bounds.tokens
    first = min(urgent, key=lambda one: one.slack_s)
    return first, max(bounds.tokens // _LEAST_PART, min(bounds.tokens, cost.tokens_within(first.slack_s)))


def _fill(ordered: Sequence[Candidate], bounds: Bounds) -> dict[str, int]:
    chosen: dict[str, int] = {}
    adapters: set[str] = set()
    loads: set[str] = set()
    left = bounds.tokens
    rounds = ((max(1, left // _SHARES), max(1, left // _STARTED_PART)), (left, left))
    for share, left_for_started in rounds:
        for candidate in ordered:
            if left <= 0:
                break
            name = candidate.adapter
            if name is not None and name not in adapters:
                cold = not candidate.resident
                full = len(adapters) >= bounds.adapters or (cold and len(loads) >= bounds.loads)
                if full and chosen:
                    continue
            start = chosen.get(candidate.job, 0)
            most = min(left, share, left_for_started) if candidate.started else min(left, share)
            count, used = _take(candidate.lengths[start:], most, at_least_one=not chosen)
            if count == 0:
                continue
            if candidate.started:
                left_for_started -= used
            chosen[candidate.job] = start + count
            left -= used
            if name is not None:
                adapters.add(name)
                if not candidate.resident:
                    loads.add(name)
    return chosen


def _take(lengths: Sequence[int], tokens: int, *, at_least_one: bool) -> tuple[int, int]:
    count = used = 0
    for length in lengths:
        if used + length > tokens and not (at_least_one and count == 0):
            break
        count += 1
        used += length
    return count, used
