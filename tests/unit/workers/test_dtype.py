"""The dtype of a model: fast and close to float32, or float32; adapters and heads work in each."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.unit.workers.families import adapters_of, load, load_family, plain_model, with_head, write_model
from wire.jobs import ClassifyInputs, Task
from workers.models.dtype import COSINE_BOUND, settle_dtype
from workers.models.heads import head_class
from workers.models.protocol import Vectors

TEXTS = ["fish", "a small shoal of fish turns as one before the storm in deep water", "the storm"]


class Tied(nn.Module):
    """Two names for one weight, and a table of angles that must not be rounded."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8, bias=False)
        self.outer = nn.Linear(8, 8, bias=False)
        self.outer.weight = self.inner.weight
        self.register_buffer("angles", torch.arange(300.0) / 7, persistent=False)


def clock_of(module: Tied, speedup: float) -> Callable[[], float]:
    """A clock by which a pass in half precision takes ``1 / speedup`` of one in float32."""
    ticks = count()
    now = 0.0

    def clock() -> float:
        nonlocal now
        if next(ticks) % 2:
            now += 1.0 if module.inner.weight.dtype is torch.float32 else 1.0 / speedup
        return now

    return clock


def settled(module: Tied, wanted: str, *, speedup: float, noise: float = 0.0) -> torch.dtype:
    def passes() -> Tensor:
        rows = torch.eye(8)[:4] + 1.0
        half = module.inner.weight.dtype is not torch.float32
        return rows + noise * torch.linspace(-1, 1, 8) if half else rows

    return settle_dtype(module, wanted, passes, name="tied", clock=clock_of(module, speedup))


@pytest.mark.parametrize(
    ("speedup", "noise", "expected"),
    [
        (3.0, 0.0, torch.bfloat16),
        (1.1, 0.0, torch.float32),
        (0.5, 0.0, torch.float32),
        (3.0, 0.5, torch.float32),
        (3.0, float("nan"), torch.float32),
    ],
    ids=["fast and close", "hardly faster", "slower", "far from float32", "not finite"],
)
def test_half_precision_is_taken_when_it_is_fast_and_close(speedup: float, noise: float, expected: torch.dtype) -> None:
    module = Tied()
    before = module.inner.weight.detach().clone()
    assert settled(module, "auto", speedup=speedup, noise=noise) is expected
    assert module.inner.weight.dtype is expected
    assert module.outer.weight is module.inner.weight
    assert module.angles.dtype is torch.float32
    if expected is torch.float32:
        assert torch.equal(module.inner.weight, before)


@pytest.mark.parametrize("wanted", ["float32", "bfloat16", "float16"])
def test_a_dtype_that_was_asked_for_is_taken_unmeasured(wanted: str) -> None:
    module = Tied()
    assert settled(module, wanted, speedup=0.1, noise=float("nan")) is getattr(torch, wanted)
    assert module.inner.weight.dtype is getattr(torch, wanted)


def cosines(one: Vectors, other: Vectors) -> Vectors:
    found: Vectors = (one * other).sum(axis=1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
    return found


@pytest.mark.parametrize("family", ["bert", "llama", "deberta-v2"])
def test_packed_adapters_and_heads_in_bfloat16(family: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", family)
    exact, half = load_family(folder), load_family(folder, dtype="bfloat16")
    assert (exact.dtype, half.dtype) == ("float32", "bfloat16")
    assert half.size_bytes * 2 == exact.size_bytes
    plain = plain_model(folder, family, head_class(Task.CLASSIFY), num_labels=3)
    first, second = adapters_of(exact, 2)
    second = with_head(second, Task.CLASSIFY, plain, 3)
    logits = []
    for model in (exact, half):
        load(model, first, tmp_path)
        load(model, second, tmp_path)
        rows = model.prepare(Task.CLASSIFY, ClassifyInputs(TEXTS), second.head).rows
        logits.append(np.stack(model.forward(rows, [second.digest] * 3)))
    np.testing.assert_allclose(logits[1], logits[0], atol=0.25)
    assert half.adapters.size_bytes < exact.adapters.size_bytes
    mix = [(text, digest) for text in TEXTS for digest in (None, first.digest)]
    texts, digests = [text for text, _ in mix], [digest for _, digest in mix]
    mixed = half.embed(texts, digests)
    alone = np.concatenate([half.embed([text], [digest]) for text, digest in mix])
    # a row's batch changes it by rounding alone, and rounding keeps the bound
    assert cosines(mixed, alone).min() >= COSINE_BOUND
    assert cosines(mixed, exact.embed(texts, digests)).min() >= 0.99
