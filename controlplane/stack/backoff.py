"""When a dead child is started again: exponential back-off that forgets after a healthy stretch. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackoffRule:
    """Waits ``first_s``, then twice as long each time up to ``longest_s``; a run of ``healthy_s`` starts over."""

    first_s: float = 0.5
    factor: float = 2.0
    longest_s: float = 30.0
    healthy_s: float = 20.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """How many deaths in a row a child has died, and how long to wait before it is started again."""

    rule: BackoffRule
    deaths: int = 0

    def after_death(self, lived_s: float) -> Backoff:
        """The state after a child that lived ``lived_s`` seconds died."""
        return Backoff(self.rule, 1 if lived_s >= self.rule.healthy_s else self.deaths + 1)

    @property
    def wait_s(self) -> float:
        """Seconds until the next start; 0 before the first death."""
        if self.deaths == 0:
            return 0.0
        # the exponent is bounded because a float overflows after some thousand deaths
        return min(self.rule.longest_s, self.rule.first_s * self.rule.factor ** min(self.deaths - 1, 64))
