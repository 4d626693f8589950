"""Verbs on workers: drain, resume, pin, unpin, evict. The sidecar is asked; telemetry shows what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import User

from controlplane.events.services import record_event
from fleet.commands import send_command
from fleet.rows import WorkerRow
from wire.errors import Code, ShoalError
from wire.frames import WorkerCommand


@dataclass(frozen=True, slots=True)
class DrainEffect:
    """What draining a worker would do now. ``models_lost`` are base models that no other ready worker of its pool
    holds; ``waiting_jobs`` is null when the worker's last word is not live."""

    others_ready: int
    models_lost: list[str]
    waiting_jobs: int | None
    resident_adapters: int


def drain_worker(*, row: WorkerRow, actor: User | None = None) -> None:
    """Have a worker finish what it received and ask for nothing more. Raises ``ShoalError``, see ``send_command``."""
    _command(row, "drain", actor=actor, message=f"Worker {row.machine}/{row.worker} asked to drain")


def resume_worker(*, row: WorkerRow, actor: User | None = None) -> None:
    """Take a drain back. Raises ``ShoalError``, see ``send_command``."""
    _command(row, "resume", actor=actor, message=f"Worker {row.machine}/{row.worker} asked to resume")


def pin_resident(*, row: WorkerRow, digest: str, pinned: bool, actor: User | None = None) -> None:
    """Keep a resident adapter or model on a worker, or let it go again. Raises ``ShoalError``, see ``send_command``."""
    verb = "pin" if pinned else "unpin"
    _command(row, verb, actor=actor, digest=digest, message=f"{verb} of {digest[:12]} on {row.machine}/{row.worker}")


def evict_resident(*, row: WorkerRow, digest: str, actor: User | None = None) -> None:
    """Free a resident adapter or model unless it is in use. Raises ``ShoalError``, see ``send_command``."""
    _command(row, "evict", actor=actor, digest=digest, message=f"evict of {digest[:12]} on {row.machine}/{row.worker}")


@dataclass(frozen=True, slots=True)
class ResidentEffect:
    """What pinning or evicting one resident would do now. ``elsewhere`` are other workers that hold it."""

    digest: str
    name: str
    kind: str
    tier: str
    size_bytes: int
    hits: int
    pinned: bool
    elsewhere: list[str]


def preview_resident(row: WorkerRow, workers: list[WorkerRow], digest: str) -> ResidentEffect | None:
    """The effect on ``digest`` on ``row`` among ``workers``; ``None`` when it is not resident there."""
    if row.live is None:
        return None
    elsewhere = [
        f"{other.machine}/{other.worker}" for other in workers if other.key != row.key and _holds(other, digest)
    ]
    for item in row.live.adapters or []:
        if item.digest == digest:
            name = item.version or f"another team’s adapter {digest[:8]}"
            return ResidentEffect(
                digest, name, "adapter", item.tier, item.size_bytes, item.hits, item.pinned, elsewhere
            )
    for model in row.live.models:
        if model.digest == digest:
            return ResidentEffect(
                digest, model.id, "model", model.tier, model.size_bytes, model.hits, model.pinned, elsewhere
            )
    return None


def _holds(row: WorkerRow, digest: str) -> bool:
    if row.live is None or row.stale:
        return False
    adapters = {item.digest for item in row.live.adapters or []}
    return digest in adapters or digest in {model.digest for model in row.live.models}


def preview_drain(row: WorkerRow, workers: list[WorkerRow]) -> DrainEffect:
    """The effect of draining ``row`` among ``workers``."""
    others = [other for other in workers if other.key != row.key and other.pool == row.pool and other.ready]
    held = {model.id for other in others if other.live for model in other.live.models}
    mine = [model.id for model in row.live.models] if row.live else []
    return DrainEffect(
        others_ready=len(others),
        models_lost=sorted(set(mine) - held),
        waiting_jobs=row.live.figures.waiting_jobs if row.live and not row.stale else None,
        resident_adapters=len(row.live.adapters or []) if row.live else 0,
    )


def _command(row: WorkerRow, verb: str, *, actor: User | None, message: str, digest: str | None = None) -> None:
    reply = send_command(row.machine, WorkerCommand(verb=verb, worker=row.worker, digest=digest))
    if not reply.ok:
        error = reply.error
        raise ShoalError(
            error.code if error else Code.INTERNAL,
            error.message if error else f"The sidecar of {row.machine} refused to {verb} {row.worker}.",
            hint=error.hint if error else None,
        )
    record_event(
        kind=f"worker.{verb}",
        subject=f"worker {row.machine}/{row.worker}",
        message=message,
        actor=actor,
        data={"pool": row.pool, "digest": digest} if digest else {"pool": row.pool},
    )
