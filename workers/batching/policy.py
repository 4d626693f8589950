"""Which rows run in the next batch: in order of arrival, with a share for everyone, within tokens, adapters and
loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_SHARES = 4
_STARTED_PART = 2


@dataclass(frozen=True, slots=True)
class Candidate:
    """A waiting job of the chosen model: token counts of its rows that have not run, in order.

    ``started``: rows of it ran in earlier batches, so it has more than its share holds.
    """

    job: str
    lengths: Sequence[int]
    adapter: str | None
    resident: bool
    started: bool = False


@dataclass(frozen=True, slots=True)
class Bounds:
    """``adapters`` that may be in the batch together, ``loads`` of cold ones that may happen before it."""

    tokens: int
    adapters: int
    loads: int


def choose_rows(candidates: Sequence[Candidate], bounds: Bounds) -> dict[str, int]:
    """How many further rows of each job run now, for jobs with at least one; ``candidates`` are in arrival order.

    A first round gives each job at most a quarter of the tokens, and all started jobs together at most half, so that
    any number of jobs with thousands of rows lets later ones in; a second gives what is left in order of arrival. The
    oldest job always gets a row, so nobody starves.
    """
    chosen: dict[str, int] = {}
    adapters: set[str] = set()
    loads: set[str] = set()
    left = bounds.tokens
    rounds = ((max(1, left // _SHARES), max(1, left // _STARTED_PART)), (left, left))
    for share, left_for_started in rounds:
        for candidate in candidates:
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
