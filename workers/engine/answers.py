"""Answers to jobs and the credit that comes free with them; used by every stage."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import msgspec
import structlog

from wire.errors import Code, ErrorInfo
from wire.frames import Hello, Results
from wire.jobs import GenerateOutputs, Result
from workers.channel import Channel
from workers.engine.meter import Meter
from workers.engine.outbox import Outbox
from workers.engine.shelf import Shelf
from workers.engine.works import WaitingRoom, Work

log = structlog.get_logger("worker.answers")


class Answers:
    """The way back to the sidecar."""

    def __init__(self, room: WaitingRoom, shelf: Shelf, outbox: Outbox, meter: Meter, worker: str) -> None:
        self._room = room
        self._shelf = shelf
        self._outbox = outbox
        self._meter = meter
        self._worker = worker
        # a limit worked out for one connection must not be taken as sent on the next
        self._credit_lock = threading.Lock()

    def connected(self, channel: Channel, hello: Hello) -> None:
        """Start a connection: jobs of the last one are dropped, credit counts from zero."""
        with self._credit_lock:
            self._room.reset()
            self._outbox.attach(channel, hello)
        self.offer_room()

    def offer_room(self) -> None:
        """Tell the sidecar of new room, once the models that the worker starts with are there."""
        if not self._shelf.settled:
            return
        loaded = self._shelf.loaded()
        models = [one.model.record.id for one in loaded]
        adapters = [digest for one in loaded for digest in one.model.adapters.table.digests()]
        with self._credit_lock:
            self._outbox.post(self._room.pull(models=models, adapters=adapters))

    def succeed(self, work: Work) -> None:
        """Send a finished job's outputs."""
        rows = [output for output in work.outputs if output is not None]
        if work.prepared is None or work.model is None or len(rows) != len(work.prepared.rows):
            raise RuntimeError(f"job {work.job.id} has not all of its rows")
        outputs = work.model.kind.finish(work.job.task, rows, work.prepared, work.head)
        self._send(work, Result(job=work.job.id, outputs=outputs), failed=False)

    def complete(self, work: Work, outputs: GenerateOutputs, *, number: int) -> None:
        """Send the end of a text as its last part, the whole of it when ``number`` is 0."""
        self._send(work, Result(job=work.job.id, outputs=outputs, number=number), failed=False)

    def send_parts(self, parts: Sequence[tuple[Work, GenerateOutputs, int]]) -> None:
        """Send parts of texts that go on, each with its number, in one frame."""
        results = [
            self._result(work, Result(job=work.job.id, outputs=outputs, number=number, final=False))
            for work, outputs, number in parts
            if not work.gone
        ]
        self._outbox.post(Results(results=results) if results else None)

    def fail(self, work: Work, info: ErrorInfo) -> None:
        """Send a job's error."""
        log.info("job failed", job=work.job.id, version=work.job.version, code=info.code.value, reason=info.message)
        self._send(work, Result(job=work.job.id, error=info), failed=True)

    def expire(self, work: Work) -> None:
        """Send DEADLINE_EXCEEDED for a job that was not run in time."""
        late_ms = (time.time() - work.job.deadline) * 1e3
        self.fail(
            work,
            ErrorInfo(
                code=Code.DEADLINE_EXCEEDED,
                message=f"The deadline passed {late_ms:.0f} ms before the job's turn.",
                hint="Allow more time or send fewer inputs per request.",
            ),
        )

    def _send(self, work: Work, result: Result, *, failed: bool) -> None:
        if not self._room.finish(work):
            return
        answer = self._result(work, result)
        self._meter.job_done(queue_ms=answer.queue_ms, failed=failed)
        self._outbox.post(Results(results=[answer]))

    def _result(self, work: Work, result: Result) -> Result:
        """``result`` with who answers, and how long it took."""
        started = work.started if work.started is not None else time.time()
        record = work.model.record if work.model is not None else None
        return msgspec.structs.replace(
            result,
            model_digest=record.digest if record is not None else work.job.model_digest,
            adapter_digest=work.job.adapter_digest,
            batch_rows=work.batch_rows,
            queue_ms=round(max(0.0, (started - work.job.published) * 1e3), 3),
            compute_ms=round(work.compute_s * 1e3, 3),
            worker=self._worker,
        )
