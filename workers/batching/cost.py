"""What a forward pass costs, learned while serving."""

from __future__ import annotations

from dataclasses import dataclass, field

_FIRST = 8
"""Passes that are believed whatever they say: before them nothing is usual."""
_LOUD = 3.0
_USUAL_STEP = 0.1
_CHANGED = 6
"""Passes beyond the limit on one side, one after the other, that mean another speed."""
_WIDEST = 1e3
_QUIET_PART = 0.02
"""No machine repeats itself more closely than this part of a pass."""


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
    """Recursive least squares with forgetting (Haykin, Adaptive Filter Theory, chapter 10) over measured passes.

    A residual counts up to ``_LOUD`` times the usual one (Huber, "Robust estimation of a location parameter", 1964): a
    pass that another process or a first use of the device held up says little on the next. Several too slow or too
    fast in a row are no accident: what was learned is doubted then, and the new speed believed at once.
    """

    start: Cost = Cost(fixed_s=3e-3, token_s=5e-5, adapter_s=2e-5)
    forgetting: float = 0.99
    _weights: list[float] = field(init=False)
    _spread: list[list[float]] = field(default_factory=lambda: _identity())
    _usual_s: float = 0.0
    _seen: int = 0
    _row: int = 0

    def __post_init__(self) -> None:
        self._weights = [self.start.fixed_s, self.start.token_s * 1e3, self.start.adapter_s * 10]

    def update(self, *, tokens: int, adapters: int, seconds: float) -> None:
        """Learn from one measured forward pass."""
        # thousands of tokens and tens of adapters: features of one size keep the recursion well conditioned
        x = (1.0, tokens / 1e3, adapters / 10)
        residual_s = self._bounded(
            seconds - sum(weight * value for weight, value in zip(self._weights, x, strict=True)), seconds
        )
        seen = [sum(spread * value for spread, value in zip(row, x, strict=True)) for row in self._spread]
        scale = self.forgetting + sum(value * part for value, part in zip(x, seen, strict=True))
        gain = [part / scale for part in seen]
        self._weights = [weight + part * residual_s for weight, part in zip(self._weights, gain, strict=True)]
        # while one direction sees no news, forgetting would let its spread grow without bound
        self._spread = [
            [min(max((self._spread[i][j] - gain[i] * seen[j]) / self.forgetting, -_WIDEST), _WIDEST) for j in range(3)]
            for i in range(3)
        ]

    def _bounded(self, residual_s: float, seconds: float) -> float:
        """The residual, or the part of it that is believed."""
        self._seen += 1
        if self._seen <= _FIRST:
            self._usual_s = min(abs(residual_s), seconds) if self._seen == 1 else self._usual_after(residual_s)
            return residual_s
        limit_s = _LOUD * max(self._usual_s, _QUIET_PART * seconds)
        if abs(residual_s) <= limit_s:
            self._row = 0
        else:
            slow = residual_s > 0
            self._row = self._row + (1 if slow else -1) if (self._row > 0) == slow else (1 if slow else -1)
        if abs(self._row) >= _CHANGED:
            self._spread, self._seen, self._row = _identity(), 0, 0
            return residual_s
        believed_s = min(max(residual_s, -limit_s), limit_s)
        self._usual_s = self._usual_after(believed_s)
        return believed_s

    def _usual_after(self, residual_s: float) -> float:
        return self._usual_s + _USUAL_STEP * (abs(residual_s) - self._usual_s)

    @property
    def cost(self) -> Cost:
        """The present estimate."""
        fixed, token, adapter = (max(float(value), 0.0) for value in self._weights)
        return Cost(fixed_s=fixed, token_s=max(token / 1e3, 1e-7), adapter_s=adapter / 10)


def _identity() -> list[list[float]]:
    return [[float(i == j) for j in range(3)] for i in range(3)]
