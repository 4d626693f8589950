"""Versions whose jobs kill workers are refused for a while: a circuit breaker per digest."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from wire.errors import Code, ErrorInfo

DEATHS = 2
WINDOW_S = 300.0
FIRST_REFUSAL_S = 60.0
LONGEST_REFUSAL_S = 960.0
MAX_DIGESTS = 1024


@dataclass(slots=True)
class _Circuit:
    deaths: list[float] = field(default_factory=list)
    refused_until: float = 0.0
    refusal_s: float = 0.0
    reason: str = ""


@dataclass(slots=True)
class Breaker:
    """Jobs that died of killing workers, by the digest they ran on. Times are seconds since the epoch.

    Two such jobs within five minutes open the circuit for a minute. The first one after that opens it again, for twice
    as long; five minutes without any make it forget.
    """

    _circuits: OrderedDict[str, _Circuit] = field(default_factory=OrderedDict)

    def died(self, digest: str | None, reason: str, now: float) -> float | None:
        """A job on ``digest`` is dead for ``reason``; until when the digest is refused, if it is from now on.

        What the base model alone ran is the fault of its inputs: nothing is refused for it.
        """
        if digest is None:
            return None
        circuit = self._circuits.pop(digest, None) or _Circuit()
        self._circuits[digest] = circuit
        while len(self._circuits) > MAX_DIGESTS:
            self._circuits.popitem(last=False)
        if now - circuit.refused_until > WINDOW_S:
            circuit.refusal_s = 0.0
        circuit.deaths = [*(at for at in circuit.deaths if now - at <= WINDOW_S), now][-DEATHS:]
        if len(circuit.deaths) < DEATHS and not circuit.refusal_s:
            return None
        circuit.refusal_s = min(LONGEST_REFUSAL_S, 2 * circuit.refusal_s or FIRST_REFUSAL_S)
        circuit.refused_until = now + circuit.refusal_s
        circuit.reason = reason
        circuit.deaths.clear()
        return circuit.refused_until

    def refusal(self, digest: str | None, now: float) -> ErrorInfo | None:
        """Why a job on ``digest`` is not tried now, if it is not."""
        circuit = None if digest is None else self._circuits.get(digest)
        if circuit is None or now >= circuit.refused_until:
            return None
        return ErrorInfo(
            Code.POISON_JOB,
            f"Version {digest} is refused for {circuit.refused_until - now:.0f} s more: its jobs ended workers, "
            f"the last one: {circuit.reason}.",
            hint="The stream DEAD keeps these jobs. Send requests to another version, or upload a repaired one.",
        )

    def refused(self, now: float) -> dict[str, float]:
        """Until when each refused digest is."""
        return {digest: one.refused_until for digest, one in self._circuits.items() if one.refused_until > now}
