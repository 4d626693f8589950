"""One worker's connection: what it said of itself, its credit, what it has to answer."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field

from sidecar.jobs import HeldJob
from sidecar.sockets.framing import pack
from sidecar.sockets.peer import Peer
from wire import frames
from wire.errors import Code, ShoalError

UNSAID_S = 1.0
REGULAR_BEATS = 5
# Up to so many jobs are each tried alone after a worker's death: more of them would keep all others waiting.
FEW_JOBS = 4
PROVEN_S = 1.0


@dataclass(slots=True, eq=False)
class WorkerConnection:
    """Times are of the loop's clock.

    ``heard`` is the last sign of life of the device's thread, ``alive`` the last frame of any kind, ``busy_since`` when
    it got a job while it had none. ``beats`` counts frames that came while it had no jobs: after some of them silence
    means something without jobs, too. ``barred``: until when it gets no jobs of a model it could not load. ``capable``:
    the models whose tasks it does, ``holds``: of those in its memory. ``load_tokens`` and ``jobs_of`` count what is
    unfinished.
    """

    number: int
    hello: frames.Hello
    peer: Peer
    writer: asyncio.StreamWriter
    limit_tokens: int = 0
    sent_tokens: int = 0
    models: frozenset[str] = frozenset()
    adapters: frozenset[str] = frozenset()
    unfinished: dict[str, HeldJob] = field(default_factory=dict)
    draining: bool = False
    said_goodbye: bool = False
    heard: float = 0.0
    alive: float = 0.0
    busy_since: float = 0.0
    beats: int = 0
    running: frozenset[str] = frozenset()
    barred: dict[str, float] = field(default_factory=dict)
    capable: frozenset[str] = frozenset()
    holds: frozenset[str] = frozenset()
    load_tokens: int = 0
    jobs_of: Counter[str] = field(default_factory=Counter)
    closing: str = ""
    _suspects: set[str] = field(default_factory=set)
    _named: dict[str, float] = field(default_factory=dict)
    _ensured: dict[str, deque[asyncio.Future[frames.Ensured]]] = field(default_factory=dict)

    @property
    def worker(self) -> str:
        """The worker's stable id."""
        return self.hello.worker

    @property
    def room_tokens(self) -> int:
        """Tokens the worker is ready to have received beyond what was sent."""
        return max(0, self.limit_tokens - self.sent_tokens)

    @property
    def isolated(self) -> bool:
        """Whether a job that was there when a worker died runs here, alone."""
        return bool(self._suspects)

    @property
    def open(self) -> bool:
        """Whether frames can be sent."""
        return not self.closing and not self.writer.is_closing()

    def silent_s(self, now: float) -> float:
        """For how long signs of life that are due have not come."""
        if self.unfinished:
            return now - max(self.heard, self.busy_since)
        return now - self.alive if self.beats >= REGULAR_BEATS else 0.0

    def hear(self, now: float, *, device: bool) -> None:
        """A frame came; ``device``: from the thread that owns the device."""
        self.alive = now
        self.beats += not self.unfinished
        if device:
            self.heard = now

    def excuse(self, gap_s: float, now: float) -> None:
        """Take back ``gap_s`` of silence."""
        self.heard = min(now, self.heard + gap_s)
        self.alive = min(now, self.alive + gap_s)

    def run(self, jobs: frozenset[str]) -> None:
        """The worker names the jobs on its device."""
        self.running = jobs
        for job_id in jobs & self.unfinished.keys():
            self._named.setdefault(job_id, self.heard)

    def servable(self, now: float) -> frozenset[str]:
        """Models of which the worker can be given jobs."""
        if not self.barred:
            return self.capable
        self.barred = {model: until for model, until in self.barred.items() if now < until}
        return self.capable - self.barred.keys()

    def resident(self, now: float) -> frozenset[str]:
        """Those of them that are in its memory."""
        return self.holds & self.servable(now) if self.barred else self.holds

    def take(self, job_id: str) -> HeldJob | None:
        """Count a job as no longer the worker's: answered, cancelled or moved."""
        held = self.unfinished.pop(job_id, None)
        if held is not None:
            self._suspects.discard(job_id)
            self._named.pop(job_id, None)
            self.load_tokens -= held.tokens
            self.jobs_of[held.job.model] -= 1
            if not self.jobs_of[held.job.model]:
                del self.jobs_of[held.job.model]
        return held

    def take_all(self) -> list[HeldJob]:
        """Count all jobs as no longer the worker's."""
        return [held for job_id in list(self.unfinished) if (held := self.take(job_id)) is not None]

    def give(self, held: HeldJob, now: float) -> None:
        """Count a job as sent; the frame follows."""
        if not self.unfinished:
            self.busy_since = now
        held.sent = now
        self.sent_tokens += held.tokens
        self.unfinished[held.job.id] = held
        if held.kills:
            self._suspects.add(held.job.id)
        self.load_tokens += held.tokens
        self.jobs_of[held.job.model] += 1

    def worked_at(self, held: HeldJob) -> bool:
        """Whether the worker may have been at work on ``held`` when it was last heard of.

        It names what it runs at the start of each batch; what it got a second before its last sign, or later, may
        have been begun without a word. Of many that run together, those that did so for a while have proven that they
        harm nobody: their worker went on and gave signs.
        """
        if held.sent >= self.heard - UNSAID_S:
            return True
        if held.job.id not in self.running:
            return False
        return len(self.running) <= FEW_JOBS or self._named.get(held.job.id, self.heard) > self.heard - PROVEN_S

    def send(self, frame: frames.SidecarFrame) -> None:
        """Send one frame. What is in flight is bounded by the worker's credit, so nothing waits for the socket."""
        if self.open:
            self.writer.write(pack(frame))

    def close(self, reason: str) -> None:
        """Tell why and close; unfinished jobs go back when the reader ends."""
        if self.closing:
            return
        if self.open:
            self.writer.write(pack(frames.Refused(reason=reason)))
        self.closing = reason
        self.writer.close()

    def abort(self, reason: str) -> None:
        """Close without a word to a process that does not read."""
        self.closing = self.closing or reason
        self.writer.transport.abort()

    async def request(self, frame: frames.Ensure | frames.Evict | frames.Pin, timeout_s: float) -> frames.Ensured:
        """Send ``frame`` and await its ``Ensured``. Raises ``ShoalError`` NO_WORKER when none comes."""
        future: asyncio.Future[frames.Ensured] = asyncio.get_running_loop().create_future()
        waiting = self._ensured.setdefault(frame.digest, deque())
        waiting.append(future)
        self.send(frame)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise ShoalError(
                Code.NO_WORKER, f"Worker {self.worker} did not answer within {timeout_s:.0f} s.",
                hint="Look at the worker's log; the command may still take effect.",
            ) from None  # fmt: skip
        finally:
            if future in waiting:
                waiting.remove(future)
            if not waiting:
                self._ensured.pop(frame.digest, None)

    def ensured(self, frame: frames.Ensured) -> None:
        """Give the outcome to the oldest request for its digest."""
        waiting = self._ensured.get(frame.digest)
        while waiting:
            future = waiting.popleft()
            if not future.done():
                future.set_result(frame)
                return

    def lost(self) -> None:
        """Fail what awaits an answer of this connection."""
        for waiting in self._ensured.values():
            for future in waiting:
                if not future.done():
                    future.set_exception(
                        ShoalError(Code.NO_WORKER, f"Worker {self.worker} was lost before it answered.")
                    )
