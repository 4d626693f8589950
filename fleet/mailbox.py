"""What waits for one slow reader: the newest state of each worker, never a queue."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import msgspec

from fleet.telemetry.states import Update, WorkerState


@dataclass(slots=True)
class Mailbox:
    """Memory depends on the number of workers and not on how many updates came while the reader was slow."""

    _states: dict[str, WorkerState] = field(default_factory=dict)
    _filled: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, update: Update) -> None:
        """Take an update over what waits; an adapter list that still waits is kept when the new state has none."""
        for state in update.workers:
            waiting = self._states.get(state.key)
            if state.adapters is None and waiting is not None and waiting.adapters is not None:
                state = msgspec.structs.replace(state, adapters=waiting.adapters)
            self._states[state.key] = state
        if self._states:
            self._filled.set()

    async def wait(self) -> None:
        """Return once something waits."""
        await self._filled.wait()

    def take(self) -> list[WorkerState]:
        """What waits, in no order; the box is empty afterwards."""
        states, self._states = list(self._states.values()), {}
        self._filled.clear()
        return states
