"""The work of a simulated device: jobs come in, batches are formed as the real worker forms them, time passes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from fabric.fairness import TenantShares
from wire import frames
from wire.errors import Code, ErrorInfo, ShoalError
from wire.jobs import GenerateInputs, GenerateOutputs, Job, Outputs, Result
from wire.registry import ModelRecord
from workers.batching.cost import Cost, CostModel
from workers.batching.policy import Bounds, Candidate, choose_rows
from workers.engine.meter import Meter
from workers.runtimes.simulated_answers import answer, lengths_of, texts_of
from workers.runtimes.simulated_device import SimulatedDevice
from workers.runtimes.simulated_jobs import Jobs, Work
from workers.settings import WorkerSettings

BEAT_S = 1.0
LOADS_PER_BATCH = 8
LEAST_TOKENS = 512


class SimulatedEngine:
    """Owner of jobs and device. ``send`` takes frames to the sidecar, ``None`` among them for nothing to say."""

    def __init__(self, settings: WorkerSettings, send: Callable[[frames.WorkerFrame | None], None]) -> None:
        self.jobs = Jobs(2 * settings.batch_tokens)
        self.meter = Meter()
        self.device = SimulatedDevice(
            cost=Cost(
                settings.simulated_fixed_ms / 1e3,
                settings.simulated_token_us / 1e6,
                settings.simulated_adapter_us / 1e6,
            ),
            slots=settings.slots,
            memory_bytes=settings.model_bytes or settings.simulated_memory_bytes,
            model_load_s=settings.simulated_model_load_ms / 1e3,
            adapter_load_s=settings.simulated_load_ms / 1e3,
        )
        self._settings = settings
        self._send_frame = send
        self._records: dict[str, ModelRecord] = {}
        self._learned: dict[str, CostModel] = {}
        self._last_batch: dict[str, float] = {}
        self._shares = TenantShares()
        self._running: list[Work] = []
        self._changed = asyncio.Event()
        self._stopping = False

    @property
    def settled(self) -> bool:
        """Whether the models are known."""
        return bool(self._records)

    def stop(self) -> None:
        """End after the running batch."""
        self._stopping = True
        self._changed.set()

    def take(self, frame: frames.SidecarFrame) -> None:
        """Act on one frame of the sidecar."""
        match frame:
            case frames.Models(models=models):
                self._records = {one.id: one for one in models}
                for name in set(self.device.models) - set(self._records):
                    self.device.drop(name, self._in_use(), "it is not registered any more", time.time())
            case frames.Batch(jobs=jobs, artifacts=artifacts):
                for job in jobs:
                    self._admit(job, artifacts)
            case frames.Cancel(jobs=ids):
                self.jobs.cancel(ids)
            case frames.Drain(resume=resume):
                self.jobs.draining = not resume
            case frames.Ensure() | frames.Evict() | frames.Pin():
                self._obey(frame)
            case frames.Refused():
                return
        self._offer_room()
        self._changed.set()

    def _admit(self, job: Job, artifacts: dict[str, str]) -> None:
        self.jobs.receive(job)
        record = self._records.get(job.model)
        try:
            if record is None:
                raise ShoalError(Code.MODEL_UNLOADABLE, f"{job.model} is not registered in this pool.")
            digest = job.adapter_digest or record.artifact
            path = None if digest is None else artifacts.get(digest)
            if digest is not None and (path is None or not os.path.isfile(path)):
                raise ShoalError(Code.ARTIFACT_UNAVAILABLE, f"The file of {digest} is not at {path}.")
            texts = texts_of(job)
            work = Work(job, record, path, texts, lengths_of(job, texts, record.max_tokens))
        except ShoalError as error:
            self._send(Result(job=job.id, model_digest=job.model_digest, error=error.info))
            return
        self.jobs.works[job.id] = work

    def _obey(self, frame: frames.Ensure | frames.Evict | frames.Pin) -> None:
        error: ErrorInfo | None = None
        now = time.time()
        if isinstance(frame, frames.Ensure):
            model = self.device.models.get(frame.model)
            if not os.path.isfile(frame.path):
                error = ErrorInfo(Code.ARTIFACT_UNAVAILABLE, f"There is no file {frame.path}.")
            elif model is None:
                error = ErrorInfo(Code.NOT_FOUND, f"{frame.model} is not resident.")
            elif self.device.hold_adapter(model, frame.digest, None, self._in_use(), now) is None:
                error = ErrorInfo(Code.OUT_OF_MEMORY, f"All {self.device.slots} slots are in use.")
        elif isinstance(frame, frames.Evict):
            if not self.device.drop(frame.digest, self._in_use(), "an operator freed it", now):
                error = ErrorInfo(Code.IN_USE, f"{frame.digest} is in use.")
        elif not self.device.pin(frame.digest, pinned=frame.pinned):
            error = ErrorInfo(Code.NOT_FOUND, f"{frame.digest} is not resident.")
        self._send_frame(frames.Ensured(digest=frame.digest, error=error))

    async def run(self) -> None:
        """Be the device until stopped."""
        while not self._stopping:
            works = self._next_works()
            if works:
                await self._run_batch(works)
                continue
            self._show_life()
            for record in [one for one in self._records.values() if one.pinned and one.id not in self.device.models]:
                await self._busy(self.device.hold(record, self._in_use(), time.time()))
                self._offer_room()
            self._changed.clear()
            try:
                async with asyncio.timeout(BEAT_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _next_works(self) -> list[Work]:
        """Jobs of the model whose last batch was longest ago, in order of arrival."""
        now = time.time()
        by_model: dict[str, list[Work]] = {}
        for work in list(self.jobs.works.values()):
            if work.job.deadline <= now:
                late_ms = (now - work.job.deadline) * 1e3
                self._fail(work, ErrorInfo(Code.DEADLINE_EXCEEDED, f"The deadline passed {late_ms:.0f} ms ago."))
            else:
                by_model.setdefault(work.job.model, []).append(work)
        if not by_model:
            return []
        return by_model[min(by_model, key=lambda name: self._last_batch.get(name, 0.0))]

    async def _run_batch(self, works: list[Work]) -> None:
        record, now = works[0].record, time.time()
        self._last_batch[record.id] = time.monotonic()
        await self._busy(self.device.hold(record, self._in_use() | {record.id}, now))
        model = self.device.models[record.id]
        learned = self._learned.setdefault(record.id, CostModel(start=self.device.cost))
        within = learned.cost.tokens_within(self._settings.batch_ms / 1e3)
        bounds = Bounds(
            min(self._settings.batch_tokens, max(LEAST_TOKENS, within)),
            adapters=self.device.slots,
            loads=LOADS_PER_BATCH,
            cost=learned.cost,
        )
        candidates = [
            Candidate(
                one.job.id, one.lengths[one.rows_done :], one.job.adapter_digest,
                resident=one.job.adapter_digest in model.adapters, started=one.rows_done > 0, tenant=one.job.tenant,
                slack_s=one.job.deadline - now,
            )
            for one in works
        ]  # fmt: skip
        chosen = choose_rows(candidates, bounds, self._shares)
        self._running = [one for one in works if one.job.id in chosen]
        adapters = {one.job.adapter_digest for one in self._running if one.job.adapter_digest is not None}
        self._show_life()
        for one in self._running:
            one.started = one.started or now
            if one.job.adapter_digest is not None:
                load_s = self.device.hold_adapter(model, one.job.adapter_digest, one.job.version, adapters, now)
                await self._busy(load_s or 0.0)
        tokens = sum(sum(one.lengths[one.rows_done : one.rows_done + chosen[one.job.id]]) for one in self._running)
        seconds = self.device.cost.seconds(tokens, len(adapters))
        self.meter.batch_started()
        await self._busy(seconds)
        self.meter.batch_ended(rows=sum(chosen.values()), tokens=tokens, adapters=len(adapters))
        learned.update(tokens=tokens, adapters=len(adapters), seconds=seconds)
        self._finish(chosen, seconds)
        self._offer_room()

    def _finish(self, chosen: dict[str, int], seconds: float) -> None:
        now, rows = time.time(), sum(chosen.values())
        results: list[Result] = []
        for one in self._running:
            one.rows_done += chosen[one.job.id]
            one.compute_s += seconds
            one.batch_rows = rows
            if (model := self.device.models.get(one.record.id)) is not None:
                self.device.touch(model, one.job.adapter_digest, chosen[one.job.id], now)
            if one.rows_done >= len(one.lengths) and self.jobs.works.pop(one.job.id, None) is one:
                results += self._results(one, answer(one.job, one.record, one.texts, one.lengths))
        self._running = []
        self._send(*results)

    def _results(self, work: Work, outputs: Outputs) -> list[Result]:
        queue_ms = max(0.0, ((work.started or 0.0) - work.job.published) * 1e3)
        self.meter.job_done(queue_ms=queue_ms, failed=False)
        inputs = work.job.inputs
        streams = isinstance(inputs, GenerateInputs) and inputs.stream
        parts = _parts(outputs) if streams and isinstance(outputs, GenerateOutputs) else [outputs]
        return [
            Result(
                job=work.job.id,
                model_digest=work.record.digest,
                adapter_digest=work.job.adapter_digest,
                outputs=part,
                number=number,
                final=number == len(parts) - 1,
                batch_rows=work.batch_rows,
                queue_ms=round(queue_ms, 3),
                compute_ms=round(work.compute_s * 1e3, 3),
                worker=self._settings.worker_name,
            )
            for number, part in enumerate(parts)
        ]

    def _fail(self, work: Work, error: ErrorInfo) -> None:
        self.jobs.works.pop(work.job.id, None)
        self.meter.job_done(queue_ms=0.0, failed=True)
        self._send(
            Result(
                job=work.job.id,
                model_digest=work.record.digest,
                adapter_digest=work.job.adapter_digest,
                error=error,
                worker=self._settings.worker_name,
            )
        )

    async def _busy(self, seconds: float) -> None:
        """Let the device's time pass, with a sign of life each second."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, BEAT_S))
            if left > BEAT_S:
                self._show_life()

    def _show_life(self) -> None:
        self._send_frame(frames.Progress(running=[one.job.id for one in self._running]))

    def _send(self, *results: Result) -> None:
        if results:
            self._send_frame(frames.Results(results=list(results)))

    def _offer_room(self) -> None:
        if not self._records or self._stopping:
            return
        adapters = [digest for model in self.device.models.values() for digest in model.adapters]
        self._send_frame(self.jobs.pull(list(self.device.models), adapters))

    def _in_use(self) -> set[str]:
        return {one.job.model for one in self._running} | {
            one.job.adapter_digest for one in self._running if one.job.adapter_digest is not None
        }


def _parts(outputs: GenerateOutputs) -> list[Outputs]:
    words = outputs.text.split(" ")
    parts: list[Outputs] = [GenerateOutputs(f"{word} ") for word in words[:-1]]
    last = GenerateOutputs(
        words[-1], [], outputs.finish_reason, outputs.prompt_tokens, outputs.completion_tokens, outputs.cached_tokens
    )
    return [*parts, last]
