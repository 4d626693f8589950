"""Samples with every optional figure unknown, to be filled where a test needs one."""

from __future__ import annotations

from typing import Any

import msgspec

from wire.telemetry import DeviceSample, ResidentAdapter, Telemetry, WorkerSample, WorkerState

MODEL = "sentence-transformers/all-MiniLM-L6-v2"


def device(**known: Any) -> DeviceSample:
    """A CPU of which nothing is known."""
    return DeviceSample(**{"id": "cpu", "kind": "cpu", "name": "a processor", **known})


def sample(*, worker: str = "cpu", at: float = 1_000_000.0, **known: Any) -> WorkerSample:
    """An idle second."""
    idle = WorkerSample(
        worker=worker,
        state=WorkerState.READY,
        at=at,
        device=device(),
        uptime_s=10.0,
        busy=0.0,
        requests=0,
        tokens=0,
        rows=0,
        errors=0,
        waiting_jobs=0,
        waiting_tokens=0,
        batch_rows=[],
        batch_adapters=[],
        queue_ms=[],
        loads=0,
        evictions=0,
        process_bytes=None,
        reserved_bytes=None,
        models=[],
        adapters=[],
    )
    return msgspec.structs.replace(idle, **known)


def telemetry(*, machine: str = "box", pool: str = "default", **known: Any) -> Telemetry:
    """A sample as a sidecar publishes it."""
    return Telemetry(machine=machine, pool=pool, sample=sample(**known), local_queue_jobs=0)


def resident(digest: str, *, slot: int = 0, hits: int = 1, version: str | None = None) -> ResidentAdapter:
    """An adapter in a slot."""
    return ResidentAdapter(
        digest=digest, model=MODEL, size_bytes=1000, slot=slot, pinned=False, hits=hits,
        loaded=1.0, last_used=2.0, version=version,
    )  # fmt: skip
