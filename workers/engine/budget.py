"""Room on the device: the budget of models, and the one load that waits until others made room."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import structlog

from wire.errors import Code, ErrorInfo
from wire.frames import Ensure
from wire.telemetry import Eviction
from workers.engine.memory import DeviceMemory, return_freed
from workers.engine.meter import Meter
from workers.engine.pipes import MakeRoom, Pipes
from workers.engine.shelf import Shelf
from workers.engine.works import WaitingRoom, Work
from workers.residency.eviction import HeldModel, plan_room

log = structlog.get_logger("worker.budget")
WAIT_S = 30.0
"""A load waits this long for models with jobs to become free."""


class Budget:
    """Runs on the device's thread. Weights, slots and the working memory of the largest batch stay below the limit."""

    def __init__(
        self,
        room: WaitingRoom,
        shelf: Shelf,
        pipes: Pipes,
        meter: Meter,
        memory: DeviceMemory,
        *,
        limit_bytes: int,
        cache_bytes: Callable[[], int],
    ) -> None:
        self._room = room
        self._shelf = shelf
        self._pipes = pipes
        self._meter = meter
        self._memory = memory
        self._cache_bytes = cache_bytes
        self.limit_bytes = limit_bytes
        self._waiting: MakeRoom | None = None
        self._until = 0.0

    @property
    def headroom_bytes(self) -> int:
        """What batches may take beside the weights: one runs at a time, so the largest counts, as measured."""
        return max((one.activation_bytes for one in self._shelf.loaded()), default=0)

    @property
    def reserved_bytes(self) -> int:
        """Weights, slots, the cache of texts in the making, and headroom."""
        return sum(one.held_bytes for one in self._shelf.loaded()) + self._cache_bytes() + self.headroom_bytes

    def ask(self, request: MakeRoom) -> None:
        """Answer at once, or in a later :meth:`tend`."""
        self._waiting = request
        self._until = time.monotonic() + WAIT_S
        self.tend()

    def tend(self) -> None:
        """Go on with the load that waits for room, if there is one."""
        request = self._waiting
        if request is None:
            return
        held = self._shelf.held(self._room.models_in_use())
        limit, why = self._allowed_bytes(held)
        plan = plan_room(held, needed_bytes=request.size_bytes, limit_bytes=limit)
        if plan is None:
            self._end(request, self._refusal(request, held, limit, why))
            return
        for model_id in plan.evict:
            self.evict(model_id, self._reason(model_id, request.model))
        self._stay(self._shelf.set_leaving(plan.drain))
        if not plan.drain and not plan.later:
            self._end(request, None)
        elif time.monotonic() > self._until:
            self._end(request, self._refusal(request, held, limit, f"{why}; models with jobs did not become free"))

    def trim(self) -> None:
        """Slots and measured batches grow while serving: what is above the limit goes, as far as nobody uses it."""
        over = self.reserved_bytes - self.limit_bytes
        if over <= 0:
            return
        held = self._shelf.held(self._room.models_in_use())
        idle = [model for model in held if not (model.busy or model.fresh)]
        total = sum(model.size_bytes for model in idle)
        plan = plan_room(idle, needed_bytes=0, limit_bytes=max(0, total - over))
        for model_id in plan.evict if plan is not None else ():
            self.evict(model_id, f"{self.reserved_bytes} bytes were reserved, the device allows {self.limit_bytes}.")

    def evict(self, model_id: str, reason: str) -> None:
        """Free a model that no job holds; jobs that came while it was leaving make it load anew."""
        shelved = self._shelf.get(model_id)
        if shelved is None:
            return
        size_bytes, record = shelved.held_bytes, shelved.model.record
        self._meter.evicted([Eviction("model", record.digest, reason, time.time(), name=record.id)])
        log.info("model evicted", model=record.id, size_bytes=size_bytes, reason=reason)
        again = self._shelf.remove(record.id)
        del shelved  # the last reference: its memory is free from here on
        return_freed()
        if again is not None:
            self._pipes.models.put(again)

    def _allowed_bytes(self, held: Sequence[HeldModel]) -> tuple[int, str]:
        """The bound of all models together, and what sets it: the budget, or the memory that really is there."""
        headroom = self.headroom_bytes
        allowed = self.limit_bytes - headroom - self._cache_bytes()
        there = sum(model.size_bytes for model in held) + self._memory.free_bytes() - headroom
        if there < allowed:
            return there, f"the device has {max(0, there)} bytes left for models (headroom {headroom} bytes)"
        return allowed, f"the device allows {self.limit_bytes} bytes for models (headroom {headroom} bytes)"

    def _reason(self, model_id: str, newcomer: str) -> str:
        shelved = self._shelf.get(model_id)
        if shelved is None:
            return f"Made room for {newcomer}."
        idle_s = time.monotonic() - shelved.last_batch
        return (
            f"Made room for {newcomer}: used {self._shelf.uses_of(model_id):.1f} times of late, the last time "
            f"{idle_s:.0f} s ago; loading it again takes {shelved.reload_s:.1f} s."
        )

    def _refusal(self, request: MakeRoom, held: Sequence[HeldModel], limit: int, why: str) -> ErrorInfo:
        pinned = sum(model.size_bytes for model in held if model.pinned)
        lasting = request.size_bytes > self.limit_bytes - pinned
        return ErrorInfo(
            code=Code.MODEL_UNLOADABLE if lasting else Code.OUT_OF_MEMORY,
            message=f"The model {request.model} needs {request.size_bytes} bytes; {why}, of which {pinned} are pinned "
            f"and {sum(model.size_bytes for model in held if model.busy)} in use.",
            hint="Unpin a base model, raise SHOAL_MODEL_BYTES, or serve it from another pool."
            if lasting
            else "Retry in a moment, or give this worker more memory.",
        )

    def _end(self, request: MakeRoom, refused: ErrorInfo | None) -> None:
        self._waiting = None
        self._stay(self._shelf.set_leaving(()))
        request.reply.put(refused)

    def _stay(self, waiting: Sequence[Work | Ensure]) -> None:
        for one in waiting:
            self._pipes.resume(one)
