"""The next token of every row at once, from logits.

A row's draw depends on its own seed and on how many tokens it has, and on nothing of its batch: it is the point of the
cumulative distribution, in order of token ids, that a hash of both picks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from wire.jobs import Sampling

_GREEDY_BELOW = 1e-5
_CANDIDATES = 1024
"""The nucleus of nearly every distribution is within so many tokens; sorting a whole vocabulary costs 3 ms a row."""


@dataclass(frozen=True, slots=True)
class Draw:
    """What one row asks for: ``drawn`` tokens of it exist, ``counts`` says how often each."""

    sampling: Sampling
    seed: int
    drawn: int
    counts: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen token; ``logprob`` and ``top`` (token, logprob) by the model's own distribution, where asked for."""

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


def choose_tokens(logits: Tensor, draws: Sequence[Draw]) -> list[Choice | None]:
    """One token per row of ``logits`` (rows, vocabulary); ``None`` for a row whose logits are not finite."""
    logits = logits.float()
    values, best = logits.max(dim=-1)
    finite = torch.isfinite(values).tolist()
    tokens = best.tolist()
    changed = _penalized(logits, draws)
    drawn = [row for row, draw in enumerate(draws) if finite[row] and draw.sampling.temperature >= _GREEDY_BELOW]
    greedy = [row for row, draw in enumerate(draws) if row in changed and draw.sampling.temperature < _GREEDY_BELOW]
    for row in greedy:
        tokens[row] = int(changed[row].argmax())
    if drawn:
        scores = torch.stack([changed.get(row, logits[row]) for row in drawn])
        for row, token in zip(drawn, _sample(scores, [draws[row] for row in drawn]), strict=True):
            tokens[row] = token
    return [
        _choice(logits[row], tokens[row], draw.sampling.logprobs) if finite[row] else None
        for row, draw in enumerate(draws)
    ]


def _penalized(logits: Tensor, draws: Sequence[Draw]) -> dict[int, Tensor]:
    """Rows whose tokens so far are made less likely: once for being there, and once for each time."""
    found: dict[int, Tensor] = {}
    for row, draw in enumerate(draws):
        presence, frequency = draw.sampling.presence_penalty, draw.sampling.frequency_penalty
        if draw.counts and (presence or frequency):
            ids = torch.tensor(list(draw.counts), device=logits.device)
            times = torch.tensor(list(draw.counts.values()), device=logits.device, dtype=logits.dtype)
            found[row] = logits[row].index_add(0, ids, -(presence + frequency * times))
    return found


def _sample(scores: Tensor, draws: Sequence[Draw]) -> list[int]:
    heat = torch.tensor([draw.sampling.temperature for draw in draws], device=scores.device)
    scores = scores / heat[:, None]
    limited = [row for row, draw in enumerate(draws) if draw.sampling.top_k > 0 or draw.sampling.top_p < 1]
    if limited:
        least = torch.full((len(draws), 1), -torch.inf, device=scores.device)
        for row in limited:
            least[row, 0] = _least(scores[row], draws[row].sampling)
        scores = scores.masked_fill(scores < least, -torch.inf)
    # float64: with a hundred thousand tokens the ends of neighbours are closer than float32 can tell
    ends = torch.softmax(scores.double(), dim=-1).cumsum(dim=-1)
    points = torch.tensor([uniform(draw.seed, draw.drawn) for draw in draws], dtype=torch.float64, device=ends.device)
    found = torch.searchsorted(ends, (points * ends[:, -1])[:, None], right=True)[:, 0]
    return [int(token) for token in found.clamp(max=scores.shape[-1] - 1)]


def _least(scores: Tensor, sampling: Sampling) -> Tensor:
    """The lowest score that stays in: top-k first, then the smallest set that reaches ``top_p`` of what is left
    (nucleus sampling, arXiv:1904.09751, section 3.1)."""
    size = scores.shape[0]
    top_k = min(sampling.top_k, size) if sampling.top_k > 0 else size
    values = scores.topk(min(size, max(_CANDIDATES, sampling.top_k))).values[:top_k]
    if sampling.top_p >= 1:
        return values[-1]
    whole = torch.logsumexp(values if top_k < size else scores, dim=0)
    count = int(((values - whole).exp().cumsum(0) < sampling.top_p).sum()) + 1
    if count > len(values) and len(values) < top_k:
        values = scores.sort(descending=True).values
        count = int(((values - whole).exp().cumsum(0) < sampling.top_p).sum()) + 1
    return values[min(count, len(values)) - 1]


def uniform(seed: int, number: int) -> float:
    """A number in [0, 1) that is fixed by both, and unlike that of any other pair."""
    found = hashlib.blake2b(f"{seed}:{number}".encode(), digest_size=8).digest()
    return (int.from_bytes(found, "big") >> 11) / (1 << 53)


def seed_of(job: str) -> int:
    """The seed of a job without one: should it run again elsewhere, it makes the same text."""
    return int.from_bytes(hashlib.blake2b(job.encode(), digest_size=8).digest(), "big")


def _choice(logits: Tensor, token: int, wanted: int | None) -> Choice:
    if wanted is None:
        return Choice(token)
    logprobs = torch.log_softmax(logits, dim=-1)
    best = logprobs.topk(min(wanted, logits.shape[0])) if wanted > 0 else None
    top = tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True)) if best is not None else ()
    return Choice(token, float(logprobs[token]), top)
