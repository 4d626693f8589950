"""Frames of the local socket between a sidecar and its workers: 4-byte big-endian length, then MessagePack.

Flow control is by credit, as in QUIC (RFC 9000, section 4): ``Pull.limit_tokens`` is the total of token estimates,
counted since ``Hello``, that the worker is ready to have received. The sidecar sends jobs while the total it has
sent is below the limit. A limit never goes down, so there is no race between jobs on their way and a new limit.
"""

from __future__ import annotations

import msgspec

from wire.errors import ErrorInfo
from wire.jobs import Job, Result
from wire.registry import ModelRecord
from wire.telemetry import WorkerSample

PROTOCOL = 1
MAX_FRAME_BYTES = 64 * 1024 * 1024
LENGTH_BYTES = 4


# worker → sidecar


class Hello(msgspec.Struct, frozen=True, tag="hello", omit_defaults=True):
    """First frame. ``worker`` is stable across restarts of one device; ``device`` is ``cpu`` or a GPU's UUID."""

    protocol: int
    worker: str
    device: str
    device_name: str
    pid: int
    tasks: list[str]
    memory_bytes: int | None = None
    simulated: bool = False


class Pull(msgspec.Struct, frozen=True, tag="pull", omit_defaults=True):
    """Room: ``limit_tokens`` is cumulative. Resident digests let the sidecar prefer jobs that need no load."""

    limit_tokens: int
    models: list[str]
    adapters: list[str] = []


class Results(msgspec.Struct, frozen=True, tag="results"):
    """Answers of jobs that are done."""

    results: list[Result]


class Progress(msgspec.Struct, frozen=True, tag="progress", omit_defaults=True):
    """Sign of life of the thread that owns the device; silence while jobs run makes the sidecar's watchdog act."""

    running: list[str]


class Stats(msgspec.Struct, frozen=True, tag="stats"):
    """One-second sample for telemetry."""

    sample: WorkerSample


class Goodbye(msgspec.Struct, frozen=True, tag="goodbye", omit_defaults=True):
    """The worker ends on purpose; ``unstarted`` jobs go back to the local queue."""

    unstarted: list[str]
    reason: str = ""


class Ensured(msgspec.Struct, frozen=True, tag="ensured", omit_defaults=True):
    """Outcome of an ``Ensure``, ``Evict`` or ``Pin`` frame."""

    digest: str
    error: ErrorInfo | None = None


WorkerFrame = Hello | Pull | Results | Progress | Stats | Goodbye | Ensured


# sidecar → worker


class Models(msgspec.Struct, frozen=True, tag="models"):
    """Base models of the pool, sent after ``Hello`` and whenever they change; pinned ones are loaded at once."""

    models: list[ModelRecord]


class Batch(msgspec.Struct, frozen=True, tag="batch", omit_defaults=True):
    """Jobs within the worker's room. ``artifacts``: adapter digest → path of its canonical file on this machine."""

    jobs: list[Job]
    artifacts: dict[str, str] = {}


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Nobody waits for these jobs: drop those that have not started, send no result for them."""

    jobs: list[str]


class Ensure(msgspec.Struct, frozen=True, tag="ensure"):
    """Make an adapter resident before its first job."""

    model: str
    digest: str
    path: str


class Evict(msgspec.Struct, frozen=True, tag="evict"):
    """Free a resident adapter or model unless it is in use."""

    digest: str


class Pin(msgspec.Struct, frozen=True, tag="pin"):
    """Keep a resident adapter or model until unpinned."""

    digest: str
    pinned: bool = True


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Finish what was received, ask for nothing more (``resume`` takes it back)."""

    resume: bool = False


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """Last frame before the sidecar closes a connection: why it does."""

    reason: str


SidecarFrame = Models | Batch | Cancel | Ensure | Evict | Pin | Drain | Refused


# control plane → sidecar, over NATS request/reply on ``command.<machine>``


class WorkerCommand(msgspec.Struct, frozen=True, omit_defaults=True):
    """``verb`` is drain, resume, pin, unpin, evict or ensure; The last four name an adapter by ``digest``."""

    verb: str
    worker: str
    digest: str | None = None
    model: str | None = None


class CommandReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """Answer to a ``WorkerCommand``."""

    ok: bool
    error: ErrorInfo | None = None
