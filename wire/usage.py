"""What each gateway says once a second of the requests that ended: who was asked for, how long it took, what failed."""

from __future__ import annotations

import msgspec

LATENCY_BOUNDS_MS = (5.0, 10.0, 20.0, 35.0, 50.0, 75.0, 100.0, 150.0, 200.0, 350.0, 500.0, 750.0, 1000.0, 2000.0,
                     5000.0, 10000.0, 30000.0)  # fmt: skip
"""Upper bounds of the latency histogram; the last bucket has none."""


class TargetUsage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Requests of one second that ran on one version (or base model) for one team.

    ``target`` is ``team/adapter@3`` or a base model's id, ``alias`` the alias it was reached by, if any.
    ``failed`` counts by error code the requests that failed for a reason of the serving side (status 500 and above);
    refusals of the request itself, and clients that left, count in ``refused``. ``requests`` counts all of them.
    ``latency`` has ``len(LATENCY_BOUNDS_MS) + 1`` counts, of answered requests.
    """

    team: str
    target: str
    requests: int
    latency: list[int]
    latency_sum_ms: float
    tokens: int = 0
    alias: str | None = None
    failed: dict[str, int] = {}
    refused: int = 0


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Published on ``usage.<gateway id>`` when there is anything to say. ``keys`` are ids of API keys in use."""

    gateway: str
    at: float
    targets: list[TargetUsage]
    keys: list[str] = []
