"""Forward passes of one batch: split by length, timed, with the out-of-memory ladder around each."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import structlog

from wire.errors import Code, ErrorInfo
from workers.batching.split import split_by_length
from workers.engine.answers import Answers
from workers.engine.memory import OUT_OF_MEMORY, evict_idle_adapters, free_caches
from workers.engine.meter import Meter
from workers.engine.shelf import ShelvedModel
from workers.engine.works import Work
from workers.models.protocol import Row, RowOutput
from workers.oom import is_out_of_memory
from workers.packing.host import HostTier

log = structlog.get_logger("worker.passes")


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One row of a batch: row ``number`` of a job."""

    work: Work
    number: int
    row: Row

    @property
    def ids(self) -> list[int]:
        return self.row.ids

    @property
    def adapter(self) -> str | None:
        return self.work.job.adapter_digest


class PassRunner:
    """Runs chosen rows on the device. Rows of one pass never influence each other."""

    def __init__(self, answers: Answers, meter: Meter, host: HostTier) -> None:
        self._answers = answers
        self._meter = meter
        self._host = host

    def split(self, shelved: ShelvedModel, rows: list[BatchRow], *, max_tokens: int) -> list[list[BatchRow]]:
        """The passes of a batch, in the order to run them."""
        lengths = [len(row.ids) for row in rows]
        split = split_by_length(lengths, shelved.cost.cost, max_tokens=max_tokens)
        return [[rows[number] for number in numbers] for numbers in split]

    def run_pass(self, shelved: ShelvedModel, rows: list[BatchRow], *, in_use: Collection[str]) -> None:
        """Run rows in one pass (several when memory is short) and answer the jobs that are complete.

        ``in_use``: adapters of the whole batch, which keep their slots whatever memory is short of.
        """
        rows = [row for row in rows if not row.work.gone]
        if not rows:
            return
        start = time.perf_counter()
        outputs = self._forward(shelved, rows, in_use)
        if outputs is None:
            self._halve(shelved, rows, in_use)
            return
        seconds = time.perf_counter() - start
        adapters = len({row.adapter for row in rows} - {None})
        tokens = shelved.model.kind.cost([len(row.ids) for row in rows])
        shelved.cost.update(tokens=tokens, adapters=adapters, seconds=seconds)
        self._deliver(rows, outputs, seconds)

    def _forward(self, shelved: ShelvedModel, rows: list[BatchRow], in_use: Collection[str]) -> list[RowOutput] | None:
        """Row outputs of one pass; ``None`` when it does not fit even after giving memory back."""
        inputs, adapters = [row.row for row in rows], [row.adapter for row in rows]
        for step in range(3):
            try:
                return shelved.model.forward(inputs, adapters)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                log.warning("out of memory", rows=len(rows), step=step, reason=str(error)[:200])
            # outside of the handler: the traceback would keep the failed pass's tensors alive
            if step == 0:
                free_caches()
            elif step == 1:
                self._meter.evicted(evict_idle_adapters(shelved.model, self._host, in_use))
        return None

    def _halve(self, shelved: ShelvedModel, rows: list[BatchRow], in_use: Collection[str]) -> None:
        if len(rows) == 1:
            self._answers.fail(rows[0].work, OUT_OF_MEMORY)
            return
        middle = len(rows) // 2
        self.run_pass(shelved, rows[:middle], in_use=in_use)
        self.run_pass(shelved, rows[middle:], in_use=in_use)

    def _deliver(self, rows: list[BatchRow], outputs: list[RowOutput], seconds: float) -> None:
        finite = [bool(np.isfinite(output).all()) for output in outputs]
        touched: dict[str, Work] = {}
        for position, row in enumerate(rows):
            work = row.work
            if work.gone:
                continue
            if not finite[position]:
                self._answers.fail(work, _nonfinite(row))
                continue
            work.store(row.number, outputs[position])
            touched[work.job.id] = work
        for work in touched.values():
            work.compute_s += seconds
            work.batch_rows = max(work.batch_rows, len(rows))
            if not work.gone and work.prepared is not None and work.rows_done == len(work.prepared.rows):
                self._answers.succeed(work)


def _nonfinite(row: BatchRow) -> ErrorInfo:
    who = f"adapter {row.work.job.version or row.adapter}" if row.adapter else f"model {row.work.job.model}"
    return ErrorInfo(
        code=Code.NONFINITE_OUTPUT,
        message=f"The output of {who} for input {row.number} has NaN or infinite numbers.",
        hint="Check the adapter's weights; its training may have diverged.",
    )
