"""The one thread that owns the device: commands, batches, and a sign of life every second."""

from __future__ import annotations

import queue
import time

import structlog

from fabric.fairness import TenantShares
from wire.errors import Code, ErrorInfo
from wire.frames import Progress
from workers.batching.policy import Bounds, Candidate, choose_rows
from workers.engine.answers import Answers
from workers.engine.generation import Generation
from workers.engine.meter import Meter
from workers.engine.outbox import Outbox
from workers.engine.passes import BatchRow, PassRunner
from workers.engine.pipes import LoadAdapter, Pipes
from workers.engine.residents import Residents
from workers.engine.shelf import Shelf, ShelvedModel
from workers.engine.works import WaitingRoom, Work
from workers.generation.generator import StepBounds
from workers.generation.turns import Turns
from workers.packing.host import HostTier

log = structlog.get_logger("worker.device")
_BEAT_S = 1.0
_LEAST_TOKENS = 512
_LOADS_PER_BATCH = 8
"""A slot copy takes about a millisecond; cold adapters beyond this wait one batch, so warm traffic is not held up."""


class Device:
    """Forms each batch from the worker's own state at the moment the device is free."""

    def __init__(
        self,
        room: WaitingRoom,
        shelf: Shelf,
        host: HostTier,
        pipes: Pipes,
        answers: Answers,
        outbox: Outbox,
        meter: Meter,
        residents: Residents,
        *,
        batch_tokens: int,
        batch_s: float,
        step_bounds: StepBounds | None = None,
    ) -> None:
        self._room = room
        self._shelf = shelf
        self._host = host
        self._pipes = pipes
        self._answers = answers
        self._outbox = outbox
        self._meter = meter
        self._residents = residents
        self._passes = PassRunner(answers, meter, host)
        self._shares = TenantShares()
        self._batch_tokens = batch_tokens
        self._batch_s = batch_s
        self._generation = Generation(
            shelf, answers, meter, host, residents, step_bounds or StepBounds(), ready=self._is_ready
        )
        self._turns = Turns()
        self._running: list[Work] = []
        self._shown: list[str] = []
        self._beat_at = 0.0
        self._noted_at = 0.0

    def run(self) -> None:
        """Serve until the room says stop; the batch that runs then is finished first."""
        while not self._room.stopping:
            self._beat()
            self._obey()
            self._residents.tend()
            if not self._turn():
                self._room.wait(max(0.0, self._beat_at + _BEAT_S - time.monotonic()))

    def _turn(self) -> bool:
        """Run a batch or a step of texts, whichever had less of the device of late; false when nothing can run."""
        shelved, works = self._next_model()
        self._generation.sweep()
        # texts that ended between two steps: their models must not stay for them
        self._running = [work for work in self._running if not work.gone]
        step = self._turns.step_next(batch=shelved is not None, step=self._generation.has_work)
        if not step and shelved is not None:
            start = time.monotonic()
            if self._run_batch(shelved, works):
                self._turns.count(time.monotonic() - start, step=False)
                return True
        if not self._generation.has_work:
            return False
        return self._run_step()

    def _run_step(self) -> bool:
        """One step of the texts of one model."""
        self._running = self._generation.admit()
        if not self._running:
            return False
        self._answers.offer_room()
        if sorted(self._shown) != sorted(work.job.id for work in self._running):
            self._show_life()
        start = time.monotonic()
        progress = self._generation.step()
        self._turns.count(time.monotonic() - start, step=True)
        self._running = [work for work in self._running if not work.gone]
        self._beat()
        return progress

    def _beat(self) -> None:
        now = time.monotonic()
        if now - self._noted_at >= _BEAT_S:
            # on a clock of its own: batches show life so often that they would put this off for ever
            self._noted_at = now
            if not self._running:
                self._residents.drop_unlisted()
            self._residents.snapshot()
        if now - self._beat_at >= _BEAT_S:
            self._show_life()

    def _show_life(self) -> None:
        """Name exactly the jobs on the device: should it die or hang, they alone are suspected."""
        self._beat_at = time.monotonic()
        self._shown = [work.job.id for work in self._running if not work.gone]
        self._outbox.post(Progress(running=self._shown))

    def _obey(self) -> None:
        try:
            while True:
                self._residents.obey(self._pipes.device.get_nowait())
        except queue.Empty:
            return

    def _next_model(self) -> tuple[ShelvedModel | None, list[Work]]:
        """The model with ready jobs whose last batch was longest ago, so that models take turns."""
        now = time.time()
        by_model: dict[int, list[Work]] = {}
        for work in self._room.ready_works():
            if now >= work.job.deadline:
                self._answers.expire(work)
            elif self._generation.serves(work):
                self._generation.offer(work)
            elif work.model is not None and self._has_weights(work):
                by_model.setdefault(id(work.model), []).append(work)
        waiting = [(one, by_model.pop(id(one.model))) for one in self._shelf.loaded() if id(one.model) in by_model]
        for works in by_model.values():
            for work in works:
                self._prepare_again(work)
        return min(waiting, key=lambda pair: pair[0].last_batch, default=(None, []))

    def _prepare_again(self, work: Work) -> None:
        """The model was registered anew since the job was tokenized: it starts over with the present one."""
        work.start_over()
        self._pipes.to_prepare(work)

    def _is_ready(self, work: Work) -> bool:
        """Whether a text can join: its model is still the one that is served, and its adapter is at hand."""
        if not any(one.model is work.model for one in self._shelf.loaded()):
            self._prepare_again(work)
            return False
        return self._has_weights(work)

    def _has_weights(self, work: Work) -> bool:
        """Whether the job's adapter is in a slot or at hand; one that fell out of both tiers is read again."""
        digest, model = work.job.adapter_digest, work.model
        if digest is None or model is None or digest in model.adapters.table or work.adapter is not None:
            return True
        work.adapter = self._host.get(model.key, digest)
        if work.adapter is not None:
            return True
        work.ready = False
        self._pipes.adapters.put(LoadAdapter(work))
        return False

    def _run_batch(self, shelved: ShelvedModel, works: list[Work]) -> bool:
        rows = self._load_adapters(shelved, self._choose(shelved, works))
        if not rows:
            return False
        started = time.time()
        for row in rows:
            if row.work.started is None:
                row.work.started = started
        self._running = list({row.work.job.id: row.work for row in rows}.values())
        self._show_life()
        self._answers.offer_room()
        self._meter.batch_started()
        adapters = {row.adapter for row in rows if row.adapter is not None}
        in_use = adapters | self._generation.adapters_of(shelved.model)
        for part in self._passes.split(shelved, rows, max_tokens=self._batch_tokens):
            self._passes.run_pass(shelved, part, in_use=in_use)
            self._beat()
        self._meter.batch_ended(rows=len(rows), tokens=sum(len(row.ids) for row in rows), adapters=len(adapters))
        now = time.time()
        for digest in adapters:
            if digest in shelved.model.adapters.table:
                shelved.model.adapters.table.touch(digest, now=now, hits=sum(row.adapter == digest for row in rows))
        shelved.last_batch = time.monotonic()
        unfinished = any(not work.gone for work in self._running)
        self._running = []
        if unfinished:
            self._show_life()
        self._answers.offer_room()
        return True

    def _choose(self, shelved: ShelvedModel, works: list[Work]) -> list[BatchRow]:
        table = shelved.model.adapters.table
        candidates = []
        now = time.time()
        for work in works:
            digest = work.job.adapter_digest
            resident = table.get(digest) if digest is not None else None
            prepared = work.prepared.rows if work.prepared is not None else []
            candidates.append(
                Candidate(
                    job=work.job.id,
                    lengths=[len(ids) for ids in prepared[work.rows_done :]],
                    # a pinned adapter has its slot for good: it takes none of the room for others
                    adapter=None if resident is not None and resident.pinned else digest,
                    resident=resident is not None,
                    started=work.rows_done > 0,
                    tenant=work.job.tenant,
                    slack_s=work.job.deadline - now,
                )
            )
        cost = shelved.cost.cost
        tokens = min(self._batch_tokens, max(_LEAST_TOKENS, cost.tokens_within(self._batch_s)))
        bounds = Bounds(
            tokens=tokens,
            adapters=table.room(self._generation.adapters_of(shelved.model)),
            loads=_LOADS_PER_BATCH,
            cost=cost,
        )
        chosen = choose_rows(candidates, bounds, self._shares)
        by_id = {work.job.id: work for work in works}
        # the first of them is the one that must not be left out
        return [
            BatchRow(work, number, work.prepared.rows[number])
            for work, count in ((by_id[job], count) for job, count in chosen.items())
            if work.prepared is not None
            for number in range(work.rows_done, work.rows_done + count)
        ]

    def _load_adapters(self, shelved: ShelvedModel, rows: list[BatchRow]) -> list[BatchRow]:
        """Put cold adapters into slots; rows of one that finds no room stay for a later batch."""
        table = shelved.model.adapters.table
        made = self._generation.adapters_of(shelved.model)
        in_use = made | {row.adapter for row in rows if row.adapter is not None}
        left_out: dict[str, ErrorInfo] = {}
        for work in {row.work.job.id: row.work for row in rows}.values():
            digest = work.job.adapter_digest
            if digest is None or digest in left_out or digest in table:
                continue
            error = self._residents.load(shelved.model, work.adapter, in_use=in_use)
            if error is not None and error.code is Code.OUT_OF_MEMORY and work is rows[0].work:
                # the others of this batch yield their slots to the oldest job and run in the next
                error = self._residents.load(shelved.model, work.adapter, in_use=made | {digest})
                rows = [row for row in rows if row.adapter is None or row.adapter in table or row.work is work]
                if error is None:
                    return rows
            if error is not None:
                left_out[digest] = error
                in_use.discard(digest)
        kept = [row for row in rows if row.adapter not in left_out]
        for row in rows:
            info = left_out.get(row.adapter or "")
            # room comes back when this batch is done, but the oldest job had all there is and found none
            if info is not None and (row.work is rows[0].work or info.code is not Code.OUT_OF_MEMORY):
                self._answers.fail(row.work, info)
        return kept
