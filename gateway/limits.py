"""Limits of keys and of the gateway itself. The policy is pure: the clock comes in."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from wire.errors import Code, ShoalError
from wire.registry import KeyRecord

MINUTE_S = 60.0


def admit_at(theoretical_s: float, now_s: float, per_minute: int) -> tuple[float, float]:
    """Generic cell rate algorithm (ITU-T I.371): ``per_minute`` requests a minute, all of them at once if need be.

    Returns the next theoretical arrival time and the seconds to wait (0: admitted).
    """
    gap_s = MINUTE_S / per_minute
    arrival_s = max(theoretical_s, now_s)
    wait_s = arrival_s + gap_s - now_s - MINUTE_S
    # Rounding must not refuse the last request of a full minute's burst.
    if wait_s > 1e-6:
        return theoretical_s, wait_s
    return arrival_s + gap_s, 0.0


@dataclass(slots=True)
class _Use:
    in_flight: int = 0
    theoretical_s: float = -math.inf


@dataclass(slots=True)
class Limits:
    """Counts requests in flight and the bytes of their bodies, and requests per key.

    ``enter`` and ``leave`` come in pairs; what was held meanwhile is given back by ``leave``.
    """

    max_in_flight: int
    max_bytes: int
    in_flight: int = 0
    held_bytes: int = 0
    _keys: dict[str, _Use] = field(default_factory=dict)

    def enter(self, key: KeyRecord, now_s: float) -> None:
        """Count a request in. Raises ``ShoalError(RATE_LIMITED)`` naming the limit, and counts nothing then."""
        if self.in_flight >= self.max_in_flight:
            raise refused(
                f"This gateway already serves {self.in_flight} requests; its limit is {self.max_in_flight}.",
                hint="Try again shortly, or send to another gateway.",
            )
        if key.max_in_flight is not None or key.requests_per_minute is not None:
            self._enter_key(key, now_s)
        self.in_flight += 1

    def hold(self, size_bytes: int) -> int:
        """Count bytes of a body in; how many. Raises ``ShoalError(RATE_LIMITED)`` above the bound."""
        # One request alone is always served: the bound of a body may be above the bound of all.
        if self.held_bytes and self.held_bytes + size_bytes > self.max_bytes:
            raise refused(
                f"The requests in flight hold {self.held_bytes} bytes; with the {size_bytes} of this one that is "
                f"above {self.max_bytes}, the limit of this gateway.",
                hint="Try again shortly, or send smaller requests.",
            )
        self.held_bytes += size_bytes
        return size_bytes

    def release(self, size_bytes: int) -> None:
        """Count held bytes out before their request ends."""
        self.held_bytes -= size_bytes

    def leave(self, key: KeyRecord, held_bytes: int = 0) -> None:
        """Count a request out, with the bytes that it still holds."""
        self.in_flight -= 1
        self.held_bytes -= held_bytes
        use = self._keys.get(key.id)
        if use is not None and use.in_flight:
            use.in_flight -= 1

    def keep(self, key_ids: set[str]) -> None:
        """Drop what is known of keys that are gone."""
        self._keys = {key_id: use for key_id, use in self._keys.items() if key_id in key_ids}

    def _enter_key(self, key: KeyRecord, now_s: float) -> None:
        use = self._keys.setdefault(key.id, _Use())
        if key.max_in_flight is not None and use.in_flight >= key.max_in_flight:
            raise refused(f"This key may have {key.max_in_flight} requests in flight and has them.")
        if key.requests_per_minute is not None:
            use.theoretical_s, wait_s = admit_at(use.theoretical_s, now_s, key.requests_per_minute)
            if wait_s:
                raise refused(
                    f"This key may send {key.requests_per_minute} requests a minute; "
                    f"the next is free in {math.ceil(wait_s)} s.",
                    retry_after_s=math.ceil(wait_s),
                )
        use.in_flight += 1


def refused(message: str, *, hint: str | None = None, retry_after_s: float = 1) -> ShoalError:
    """A refusal that passes by itself."""
    return ShoalError(Code.RATE_LIMITED, message, hint=hint, detail={"retry_after_s": retry_after_s})
