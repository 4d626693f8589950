"""The workers of this machine: what they say, what becomes of their jobs when they go, who is killed for silence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from sidecar import metrics
from sidecar.artifacts.cache import ArtifactCache
from sidecar.dispatch.assignment import assign, takes_jobs
from sidecar.dispatch.desk import Desk
from sidecar.dispatch.drained import DrainedWorkers
from sidecar.dispatch.roster import Roster
from sidecar.dispatch.stealing import steal
from sidecar.jobs import HeldJob, Stage
from sidecar.models import PoolModels
from sidecar.sockets.connection import WorkerConnection
from sidecar.sockets.framing import FrameError
from wire import codec, frames
from wire.errors import Code, ErrorInfo
from wire.jobs import Result
from wire.telemetry import WorkerSample

log = structlog.get_logger(__name__)

# Errors of a worker that a second try on this machine may not meet again.
TRY_AGAIN = frozenset({Code.ARTIFACT_CORRUPT, Code.ARTIFACT_UNAVAILABLE, Code.OUT_OF_MEMORY, Code.INTERNAL})
MAX_ATTEMPTS = 2
# A model that could not be loaded may be there again: a download is over, memory was freed.
BAR_S = 30.0


class Crew:
    """Connected workers by id.

    ``on_room`` is called when there may be more to ask the queue for; ``elsewhere`` tells whether another machine
    serves a model.
    """

    def __init__(
        self,
        desk: Desk,
        cache: ArtifactCache,
        on_room: Callable[[], None],
        on_sample: Callable[[str, WorkerSample], None],
        elsewhere: Callable[[str], bool],
        drained: DrainedWorkers,
        models: PoolModels,
    ) -> None:
        self.workers: dict[str, WorkerConnection] = {}
        self._bar_reasons: dict[str, ErrorInfo] = {}
        self.roster = Roster(self.workers, models, self._now)
        self._models = models
        self._drained = drained
        self._desk = desk
        self._cache = cache
        self._on_room = on_room
        self._on_sample = on_sample
        self._elsewhere = elsewhere

    # what the listener calls

    def joined(self, connection: WorkerConnection) -> None:
        """A worker said hello: it takes the place of an older connection of the same id."""
        older = self.workers.get(connection.worker)
        self.workers[connection.worker] = connection
        if older is not None:
            older.close(f"worker {connection.worker} connected again")
            self._give_back(older, crashed=False, reason="replaced")
        connection.draining = connection.worker in self._drained
        self.roster.learn(connection)
        self.roster.changed()
        connection.send(frames.Models(models=self._models.records))
        if connection.draining:
            connection.send(frames.Drain())
        metrics.WORKERS.set(len(self.workers))
        log.info("worker joined", worker=connection.worker, device=connection.hello.device_name,
                 pid=connection.hello.pid, replaced=older is not None)  # fmt: skip

    def take(self, connection: WorkerConnection, frame: frames.WorkerFrame) -> None:
        """Act on one frame."""
        device = isinstance(frame, frames.Results | frames.Progress)
        connection.hear(self._now(), device=device)
        match frame:
            case frames.Pull():
                connection.limit_tokens = max(connection.limit_tokens, frame.limit_tokens)
                connection.adapters = frozenset(frame.adapters)
                held = frozenset(frame.models)
                if held != connection.models:
                    connection.models = held
                    self.roster.learn(connection)
                self._room_changed()
            case frames.Results():
                for result in frame.results:
                    self._take_result(connection, result)
                self._room_changed()
            case frames.Progress():
                connection.run(frozenset(frame.running))
            case frames.Stats():
                self._on_sample(connection.worker, frame.sample)
            case frames.Ensured():
                connection.ensured(frame)
            case frames.Goodbye():
                self._take_goodbye(connection, frame)
            case frames.Hello():
                raise FrameError("hello was said already on this connection")

    def left(self, connection: WorkerConnection, reason: str) -> None:
        """The connection is over: what it had goes back to the local queue at once."""
        if self.workers.get(connection.worker) is connection:
            del self.workers[connection.worker]
        self.roster.changed()
        connection.lost()
        metrics.WORKERS.set(len(self.workers))
        metrics.WORKERS_LOST.labels(reason="goodbye" if connection.said_goodbye else "lost").inc()
        log.info("worker left", worker=connection.worker, reason=reason, unfinished=len(connection.unfinished))
        self._give_back(connection, crashed=not connection.said_goodbye, reason="worker lost")

    # what the service calls

    def set_models(self) -> None:
        """Tell every worker which models the pool has."""
        frame = frames.Models(models=self._models.records)
        for connection in self.workers.values():
            self.roster.learn(connection)
            connection.send(frame)
        self.roster.changed()
        self._room_changed()

    def assign(self) -> None:
        """Hand jobs over."""
        assign(self._desk, self.workers.values())

    def steal(self) -> None:
        """Let idle workers take over what busy ones have not begun."""
        if len(self.workers) > 1 and steal(self._desk, self.workers.values(), self._now()):
            self._room_changed()

    def refusal(self, model: str) -> ErrorInfo | None:
        """Why no worker of any machine runs jobs of ``model`` now, if each one here just failed to load it."""
        if model not in self._bar_reasons or not self.roster.taking or self._elsewhere(model):
            return None
        return None if model in self.roster.servable() else self._bar_reasons[model]

    def drain(self, worker: str, *, resume: bool) -> None:
        """Give ``worker`` nothing more (or again); holds for later connections of the same id too."""
        connection = self.workers[worker]
        connection.draining = not resume
        self.roster.changed()
        self._drained.set(worker, drained=not resume)
        connection.send(frames.Drain(resume=resume))
        self._room_changed()

    def drain_all(self) -> None:
        """Give nobody anything more, since the sidecar stops; the next one starts with what operators drained."""
        for connection in self.workers.values():
            connection.draining = True
            connection.send(frames.Drain())
        self.roster.changed()

    def cancel(self, held: HeldJob) -> None:
        """Tell the worker that has a cancelled job."""
        for connection in self.workers.values():
            if connection.unfinished.get(held.job.id) is held:
                connection.take(held.job.id)
                connection.send(frames.Cancel(jobs=[held.job.id]))

    @property
    def rooms_tokens(self) -> list[int]:
        """Room of each worker that can be given something now."""
        return [one.room_tokens for one in self.workers.values() if takes_jobs(one)]

    def kill_silent(self, limit_s: float) -> None:
        """SIGKILL workers that owe a sign of life for ``limit_s``, and take their jobs back."""
        now = self._now()
        for connection in list(self.workers.values()):
            silent_s = connection.silent_s(now)
            if silent_s < limit_s:
                continue
            killed = connection.peer.kill(connection.hello.pid)
            metrics.WORKERS_KILLED.inc()
            log.error("worker gives no sign of life, ended", worker=connection.worker, pid=connection.hello.pid,
                      silent_s=round(silent_s, 1), unfinished=len(connection.unfinished), killed=killed)  # fmt: skip
            connection.abort(f"no sign of life for {silent_s:.0f} s")

    def excuse_silence(self, gap_s: float) -> None:
        """Count ``gap_s`` as if every worker had been heard meanwhile."""
        for connection in self.workers.values():
            connection.excuse(gap_s, self._now())

    # inside

    def _take_result(self, connection: WorkerConnection, result: Result) -> None:
        held = connection.unfinished.get(result.job)
        if held is None:
            return  # Cancelled, or answered by another worker after this one was given up.
        if not result.final:
            if self._desk.owns(held):
                self._desk.say_part(held, codec.encode(result))
            return
        connection.take(result.job)
        if not self._desk.owns(held):
            return  # The deadline passed.
        error = result.error
        if error is not None and error.code in TRY_AGAIN:
            self._retry(held, result)
        elif error is not None and error.code is Code.MODEL_UNLOADABLE:
            self._bar(connection, held.job.model, error)
            self._pass_on(held, result)
        else:
            self._desk.answer(held, result)

    def _bar(self, connection: WorkerConnection, model: str, error: ErrorInfo) -> None:
        """Keep jobs of ``model`` away from a worker that cannot load it: failing fast, it would draw them all."""
        now = self._now()
        if connection.barred.get(model, now) > now:
            return
        connection.barred[model] = now + BAR_S
        barred = {name for one in self.workers.values() for name in one.barred}
        self._bar_reasons = {name: why for name, why in self._bar_reasons.items() if name in barred} | {model: error}
        self.roster.changed()
        log.error("worker cannot load a model and gets none of its jobs for a while", worker=connection.worker,
                  model=model, seconds=BAR_S, reason=error.message)  # fmt: skip
        if model not in self.roster.servable():
            waiting = [one for one in self._desk.held.values() if one.stage is Stage.WAITING and one.job.model == model]
            for held in waiting:
                self._pass_on(held, Result(job=held.job.id, model_digest=held.job.model_digest, error=error))
        self._room_changed()

    def _pass_on(self, held: HeldJob, refusal: Result) -> None:
        """Let another worker, else another machine, run what could not be loaded here; else the refusal stands."""
        if held.job.model in self.roster.servable():
            if held.stage is not Stage.WAITING:
                self._desk.requeue(held, "model unloadable")
        elif held.delivery.last or not self._elsewhere(held.job.model):
            self._desk.answer(held, refusal)
        else:
            self._desk.hand_back(held, "model unloadable")

    def _retry(self, held: HeldJob, result: Result) -> None:
        held.attempts += 1
        code = Code.INTERNAL if result.error is None else result.error.code
        digest = held.digest
        if held.attempts < MAX_ATTEMPTS:
            if code is Code.ARTIFACT_CORRUPT and digest is not None:
                self._cache.drop(digest)
            self._desk.requeue(held, str(code))
        elif code is Code.INTERNAL and result.error is not None:
            self._desk.bury(held, f"{held.attempts} tries failed, the last with: {result.error.message}")
        else:
            self._desk.answer(held, result)

    def _take_goodbye(self, connection: WorkerConnection, frame: frames.Goodbye) -> None:
        log.info("worker says goodbye", worker=connection.worker, reason=frame.reason)
        connection.said_goodbye = True
        connection.draining = True
        self.roster.changed()
        for job_id in frame.unstarted:
            held = connection.take(job_id)
            if held is not None and self._desk.owns(held):
                self._desk.requeue(held, "goodbye")

    def _give_back(self, connection: WorkerConnection, *, crashed: bool, reason: str) -> None:
        worked_at = {job_id for job_id, held in connection.unfinished.items() if connection.worked_at(held)}
        for held in connection.take_all():
            if not self._desk.owns(held):
                continue
            if crashed:
                self._desk.suspect(held, worker=connection.worker, worked_at=held.job.id in worked_at)
            else:
                self._desk.requeue(held, reason)
        self._room_changed()

    def _room_changed(self) -> None:
        self._desk.changed.set()
        self._on_room()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
