"""Keeps the parts of a stack alive: ordered start, restart with back-off, ordered stop. Knows no Django."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

from controlplane.stack.backoff import Backoff, BackoffRule
from controlplane.stack.child import Child, describe_exit
from controlplane.stack.failures import BootFailedError
from controlplane.stack.guard import find_marked, send_signal
from controlplane.stack.logs import LinePrinter
from controlplane.stack.parts import Part, check_plan

_CHECK_EVERY_S = 0.1
_CHECK_SLOWLY_S = 0.5


@dataclass(slots=True)
class _Kept:
    """A part and what is known of it now."""

    part: Part
    backoff: Backoff
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    child: Child | None = None
    reason: str = "not started yet"


class Supervisor:
    """Runs ``parts`` until :meth:`stop`; each dead child comes back, each ``once`` part runs to its end."""

    def __init__(
        self, parts: Sequence[Part], *, mark: str, printer: LinePrinter, rule: BackoffRule | None = None
    ) -> None:
        check_plan(parts)
        self._mark = mark
        self._printer = printer
        self._kept = {part.name: _Kept(part, Backoff(rule or BackoffRule())) for part in parts}
        self._stopping = asyncio.Event()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keepers: list[asyncio.Task[None]] = []

    async def start(self, *, timeout_s: float) -> None:
        """Start every part and return once all are ready.

        Raises ``BootFailedError`` when a ``once`` part fails or ``timeout_s`` passes; the caller then stops the rest.
        """
        self._keepers = [
            asyncio.create_task(self._keep(kept), name=f"keep {name}") for name, kept in self._kept.items()
        ]
        for keeper in self._keepers:
            keeper.add_done_callback(self._note_failure)
        all_ready = asyncio.create_task(_wait_for(kept.ready for kept in self._kept.values()))
        try:
            awaited: set[asyncio.Future[Any]] = {all_ready, self._failed}
            done, _ = await asyncio.wait(awaited, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if self._failed in done:
                self._failed.result()
            if all_ready not in done:
                raise BootFailedError(self._describe_unready(timeout_s))
        finally:
            all_ready.cancel()

    async def watch(self) -> None:
        """Return never; raises what killed a keeper, so that a dead stage ends the stack loudly."""
        await asyncio.shield(self._failed)

    async def stop(self) -> None:
        """Stop all parts, stage by stage."""
        self._stopping.set()
        # a once part that still runs would hold up the stop, and nothing else needs its result any more
        living = sorted((kept.part for kept in self._kept.values()), key=lambda part: (not part.once, part.stop_stage))
        for _, stage in groupby(living, key=lambda part: (not part.once, part.stop_stage)):
            await asyncio.gather(*(self._stop_one(self._kept[part.name]) for part in stage))
        await asyncio.gather(*self._keepers, return_exceptions=True)
        send_signal(find_marked(self._mark), signal.SIGKILL)

    def kill(self) -> None:
        """End everything at once, for a second Ctrl-C."""
        self._stopping.set()
        for kept in self._kept.values():
            if kept.child is not None:
                kept.child.signal(signal.SIGKILL)

    async def _keep(self, kept: _Kept) -> None:
        kept.reason = f"waits for {', '.join(kept.part.needs)}" if kept.part.needs else kept.reason
        await self._wait_unless_stopping([self._kept[need].ready for need in kept.part.needs])
        while not self._stopping.is_set():
            status = await self._live_once(kept)
            if self._stopping.is_set():
                return
            if kept.part.once:
                self._finish_once(kept, status)
                return
            await self._wait_before_restart(kept, status)

    async def _live_once(self, kept: _Kept) -> int:
        """One life of the part; returns its exit status."""
        name = kept.part.name
        try:
            child = await Child.start(kept.part, mark=self._mark, on_line=partial(self._print, kept.part))
        except OSError as error:
            self._say(name, f"cannot start {kept.part.command[0]}: {error}")
            kept.backoff = kept.backoff.after_death(0.0)
            return 127
        kept.child = child
        kept.reason = "started, not ready yet"
        if self._stopping.is_set():
            # the stop passed by while it was being born
            child.signal(signal.SIGKILL)
        watcher = asyncio.create_task(self._await_ready(kept, child))
        watcher.add_done_callback(self._note_failure)
        try:
            status = await child.wait()
        finally:
            kept.child = None
            watcher.cancel()
        kept.backoff = kept.backoff.after_death(child.lived_s)
        return status

    async def _await_ready(self, kept: _Kept, child: Child) -> None:
        if kept.part.once:
            return
        pause_s = _CHECK_EVERY_S
        while (reason := await kept.part.check(child.started_at)) is not None:
            kept.reason = reason
            await asyncio.sleep(pause_s)
            pause_s = min(_CHECK_SLOWLY_S, pause_s * 1.2)
        kept.ready.set()
        self._say(kept.part.name, f"ready after {child.lived_s:.1f} s (pid {child.pid})")

    def _finish_once(self, kept: _Kept, status: int) -> None:
        if status == 0:
            kept.ready.set()
        elif not self._failed.done():
            self._printer.recall(kept.part.name)
            self._failed.set_exception(
                BootFailedError(f"{kept.part.name} {describe_exit(status)}; its lines above say why")
            )

    async def _wait_before_restart(self, kept: _Kept, status: int) -> None:
        wait_s = kept.backoff.wait_s
        self._printer.recall(kept.part.name)
        kept.reason = f"{describe_exit(status)} ({kept.backoff.deaths} in a row)"
        self._say(kept.part.name, f"{kept.reason}; starts again in {wait_s:.1f} s")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._stopping.wait()

    async def _wait_unless_stopping(self, events: Sequence[asyncio.Event]) -> None:
        waits = {asyncio.create_task(_wait_for(events)), asyncio.create_task(_wait_for([self._stopping]))}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _stop_one(self, kept: _Kept) -> None:
        child = kept.child
        if child is None:
            return
        if await child.stop():
            self._say(kept.part.name, f"did not stop within {kept.part.grace_s:g} s and was killed")
        else:
            self._say(kept.part.name, "stopped")

    def _note_failure(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        if not self._failed.done():
            self._failed.set_exception(error)

    def _describe_unready(self, timeout_s: float) -> str:
        waiting = [f"  {name}: {kept.reason}" for name, kept in self._kept.items() if not kept.ready.is_set()]
        return "\n".join([f"not ready after {timeout_s:g} s:", *waiting])

    def _print(self, part: Part, line: str) -> None:
        if part.noise is None or not part.noise.search(line):
            self._printer.line(part.name, line)

    def _say(self, name: str, text: str) -> None:
        self._printer.line(name, text, loud=True)


async def _wait_for(events: Iterable[asyncio.Event]) -> None:
    for event in events:
        await event.wait()
