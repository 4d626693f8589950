"""Jobs that make text, on the device's thread: let in, stepped, streamed, ended."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from wire.errors import Code, ErrorInfo
from wire.jobs import GenerateInputs, GenerateOutputs, Task
from workers.engine.answers import Answers
from workers.engine.memory import evict_idle_adapters
from workers.engine.meter import Meter
from workers.engine.residents import Residents
from workers.engine.shelf import Shelf
from workers.engine.works import Work
from workers.generation.generator import NO_MEMORY, Generator, StepBounds, StepOutcome
from workers.generation.text import Text
from workers.models.causal import CausalModel
from workers.models.loaded import LoadedModel
from workers.packing.host import HostTier

log = structlog.get_logger("worker.generation")
_LOADS_PER_STEP = 8
"""A slot copy takes about a millisecond; the texts in the making wait for no more of them than this."""


@dataclass(slots=True)
class _Line:
    """The texts of one loaded model: ``waiting`` in order of arrival, ``running`` by job."""

    generator: Generator
    kind: CausalModel
    waiting: deque[Work] = field(default_factory=deque)
    running: dict[str, tuple[Work, Text]] = field(default_factory=dict)
    last_step: float = 0.0

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running)


class Generation:
    """One line per model that has text to make; lines take turns.

    ``ready`` says whether a job's model and adapter are at hand, and sends it back to an earlier stage when not.
    """

    def __init__(
        self,
        shelf: Shelf,
        answers: Answers,
        meter: Meter,
        host: HostTier,
        residents: Residents,
        bounds: StepBounds,
        *,
        ready: Callable[[Work], bool],
    ) -> None:
        self._shelf = shelf
        self._answers = answers
        self._meter = meter
        self._host = host
        self._residents = residents
        self._bounds = bounds
        self._ready = ready
        self._lines: dict[int, _Line] = {}

    @staticmethod
    def serves(work: Work) -> bool:
        """Whether a prepared job is one of these."""
        return work.job.task is Task.GENERATE

    @property
    def has_work(self) -> bool:
        return any(line.has_work for line in self._lines.values())

    @property
    def running(self) -> list[Work]:
        """Jobs whose text is in the making."""
        return [work for line in self._lines.values() for work, _ in line.running.values()]

    def adapters_of(self, model: LoadedModel) -> set[str]:
        """Adapters of a model's texts in the making, which keep their slots."""
        line = self._lines.get(id(model))
        return line.generator.adapters if line is not None else set()

    def offer(self, work: Work) -> None:
        """Take a job that is ready; it waits here for its turn."""
        work.ready = False
        model = work.model
        if model is None or not isinstance(model.kind, CausalModel):
            raise RuntimeError(f"job {work.job.id} has no model that makes text")
        line = self._lines.get(id(model))
        if line is None:
            line = self._lines[id(model)] = _Line(self._generator(model, model.kind), model.kind)
        line.waiting.append(work)

    def sweep(self) -> None:
        """End what nobody waits for any more; their rows are free at once."""
        now = time.time()
        for key, line in list(self._lines.items()):
            for work, text in list(line.running.values()):
                if not work.gone and now >= work.job.deadline:
                    self._answers.fail(work, _late(work, text))
                if work.gone:
                    self._drop(line, work, text)
            for work in line.waiting:
                if not work.gone and now >= work.job.deadline:
                    self._answers.expire(work)
            line.waiting = deque(work for work in line.waiting if not work.gone)
            if not line.has_work:
                del self._lines[key]

    def admit(self) -> list[Work]:
        """Let texts of the line whose turn it is join; returns the jobs that the next :meth:`step` runs."""
        line = min((one for one in self._lines.values() if one.has_work), key=lambda one: one.last_step, default=None)
        if line is None:
            return []
        self._admit(line)
        return [work for work, _ in line.running.values()]

    def step(self) -> bool:
        """One step of the line whose turn it is; false when no text could go on, for memory is short."""
        line = min((one for one in self._lines.values() if one.running), key=lambda one: one.last_step, default=None)
        if line is None:
            return False
        line.last_step = time.monotonic()
        adapters = line.generator.adapters
        self._meter.batch_started()
        outcome = line.generator.step()
        self._meter.batch_ended(rows=outcome.rows, tokens=outcome.tokens, adapters=len(adapters))
        self._meter.generated(len(outcome.advanced))
        for shelved in self._shelf.loaded():
            if shelved.model is line.generator.model:
                shelved.last_batch = time.monotonic()
        now = time.time()
        for digest in adapters:
            line.generator.model.adapters.table.touch(digest, now=now, hits=0)
        self._deliver(line, outcome)
        return bool(outcome.rows or outcome.failed)

    def _generator(self, model: LoadedModel, kind: CausalModel) -> Generator:
        def free_memory() -> None:
            self._meter.evicted(evict_idle_adapters(model, self._host, generator.adapters))

        costs = [one.cost.cost for one in self._shelf.loaded() if one.model is model]
        generator = Generator(model, kind, self._bounds, free_memory, token_s=max([5e-5, *(c.token_s for c in costs)]))
        return generator

    def _admit(self, line: _Line) -> None:
        loads = 0
        while line.waiting and loads < _LOADS_PER_STEP:
            work = line.waiting[0]
            if not self._ready(work):
                line.waiting.popleft()  # it comes back once it is
                continue
            digest, table = work.job.adapter_digest, line.generator.model.adapters.table
            if digest is not None and digest not in table:
                loads += 1
                refused = self._residents.load(line.generator.model, work.adapter, in_use=line.generator.adapters)
                if refused is not None and refused.code is Code.OUT_OF_MEMORY and line.running:
                    return  # a slot comes free when a text ends, and the oldest is the first to get it
                if refused is not None:
                    line.waiting.popleft()
                    self._answers.fail(work, refused)
                    continue
            begun = self._begin(line, work)
            if not begun and line.running:
                return  # a row comes free when a text ends
            line.waiting.popleft()
            if not begun:
                self._answers.fail(work, NO_MEMORY)
            elif digest is not None:
                table.touch(digest, now=time.time(), hits=1)

    def _begin(self, line: _Line, work: Work) -> bool:
        inputs = work.job.inputs
        if work.prepared is None or not isinstance(inputs, GenerateInputs):
            raise RuntimeError(f"job {work.job.id} has no prompt")
        text = line.kind.begin(work.job.id, work.job.adapter_digest, work.prepared.rows[0].ids, inputs.sampling)
        if not line.generator.join(text):
            return False
        work.started = time.time()
        line.running[work.job.id] = (work, text)
        return True

    def _deliver(self, line: _Line, outcome: StepOutcome) -> None:
        parts: list[tuple[Work, GenerateOutputs, int]] = []
        for text in outcome.advanced:
            work, _ = line.running[text.key]
            work.compute_s += outcome.seconds
            work.batch_rows = max(work.batch_rows, outcome.rows)
            if work.gone:
                continue
            if text.finish_reason is not None:
                self._answers.complete(work, text.take_end(), number=text.parts)
                self._drop(line, work, text, keep=True)
            elif isinstance(work.job.inputs, GenerateInputs) and work.job.inputs.stream:
                number = text.parts
                part = text.take_part()
                if part is not None:
                    parts.append((work, part, number))
        self._answers.send_parts(parts)
        for text, info in outcome.failed:
            work, _ = line.running[text.key]
            self._answers.fail(work, info)
            self._drop(line, work, text)

    def _drop(self, line: _Line, work: Work, text: Text, *, keep: bool = False) -> None:
        line.generator.leave(text, keep=keep)
        del line.running[work.job.id]


def cache_bytes(shelf: Shelf) -> int:
    """Bytes of keys and values of all loaded models."""
    return sum(one.model.kind.cache_bytes for one in shelf.loaded() if isinstance(one.model.kind, CausalModel))


def _late(work: Work, text: Text) -> ErrorInfo:
    return ErrorInfo(
        code=Code.DEADLINE_EXCEEDED,
        message=f"The deadline passed after {len(text.made)} of at most {text.limit} tokens.",
        hint="Allow more time, ask for fewer tokens, or stream the answer.",
    )
