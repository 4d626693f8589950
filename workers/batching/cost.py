"""What a forward pass costs, learned while serving."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Cost:
    """``seconds ≈ fixed_s + token_s · tokens + adapter_s · adapters``, all at least 0."""

    fixed_s: float
    token_s: float
    adapter_s: float

    def seconds(self, tokens: int, adapters: int = 0) -> float:
        return self.fixed_s + self.token_s * tokens + self.adapter_s * adapters

    def tokens_within(self, seconds: float) -> int:
        """Tokens whose forward pass fits into ``seconds``; at least 1."""
        return max(1, int((seconds - self.fixed_s) / max(self.token_s, 1e-9)))


@dataclass(slots=True)
class CostModel:
    """Recursive least squares with forgetting (Haykin, Adaptive Filter Theory, chapter 10) over measured passes."""

    start: Cost = Cost(fixed_s=3e-3, token_s=5e-5, adapter_s=2e-5)
    forgetting: float = 0.99
    _weights: Vector = field(init=False)
    _spread: Vector = field(init=False)

    def __post_init__(self) -> None:
        self._weights = np.array([self.start.fixed_s, self.start.token_s * 1e3, self.start.adapter_s * 10])
        self._spread = np.eye(3) * 1.0

    def update(self, *, tokens: int, adapters: int, seconds: float) -> None:
        """Learn from one measured forward pass."""
        # thousands of tokens and tens of adapters: features of one size keep the recursion well conditioned
        x = np.array([1.0, tokens / 1e3, adapters / 10])
        gain = self._spread @ x / (self.forgetting + x @ self._spread @ x)
        self._weights = self._weights + gain * (seconds - x @ self._weights)
        spread = (self._spread - np.outer(gain, x @ self._spread)) / self.forgetting
        # while one direction sees no news, forgetting would let its spread grow without bound
        self._spread = np.clip((spread + spread.T) / 2, -1e3, 1e3)

    @property
    def cost(self) -> Cost:
        """The present estimate."""
        fixed, token, adapter = (max(float(value), 0.0) for value in self._weights)
        return Cost(fixed_s=fixed, token_s=max(token / 1e3, 1e-7), adapter_s=adapter / 10)
