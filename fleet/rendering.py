"""From the bridge's states to what one viewer may see."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from fleet import payloads
from fleet.naming import NameBook
from fleet.telemetry.points import Point
from fleet.telemetry.reader import LiveView
from fleet.telemetry.states import WorkerState
from wire.names import parse_address
from wire.telemetry import Eviction, ResidentAdapter, ResidentModel

_VERSION = re.compile(r"([a-z0-9][a-z0-9._-]*)/[a-z0-9][a-z0-9._-]*@\d+")


def digests_of(states: Iterable[WorkerState]) -> set[str]:
    """Digests of everything in ``states`` that may be some team's version."""
    found: set[str] = set()
    for state in states:
        found |= {adapter.digest for adapter in state.adapters or ()}
        found |= {model.digest for model in state.models if _is_version(model.id)}
        found |= {row.digest for row in state.evicted}
        found |= state.refused.keys()
    return found


def render_worker(state: WorkerState, *, names: NameBook, teams: frozenset[str]) -> payloads.Worker:
    """The payload of one worker for a viewer in ``teams``; every digest must be in ``names`` already."""
    adapters = state.adapters
    return payloads.Worker(
        id=state.key,
        machine=state.machine,
        worker=state.worker,
        pool=state.pool,
        state=state.state,
        device=state.device,
        last_seen=state.received,
        uptime_s=state.uptime_s,
        waiting_tokens=state.waiting_tokens,
        local_queue_jobs=state.local_queue_jobs,
        cached_bytes=state.cached_bytes,
        figures=render_figures(state.point),
        models=[_model(row, names, teams) for row in state.models],
        adapters=None if adapters is None else [_adapter(row, names, teams) for row in adapters],
        evicted=[_eviction(row, names, teams) for row in reversed(state.evicted)],
        budget_bytes=state.budget_bytes,
        batch_rows=state.batch_rows,
        batch_adapters=state.batch_adapters,
        refused=[payloads.Refusal(digest, names.name(digest, teams), until) for digest, until in state.refused.items()],
    )


def render_figures(point: Point) -> payloads.Figures:
    """The payload of one second."""
    return payloads.Figures(
        at=point.at,
        utilization=point.utilization,
        busy=point.busy,
        memory_used_bytes=point.memory_used_bytes,
        process_bytes=point.process_bytes,
        reserved_bytes=point.reserved_bytes,
        power_watts=point.power_watts,
        temperature_c=point.temperature_c,
        requests_per_s=point.requests_per_s,
        tokens_per_s=point.tokens_per_s,
        errors=point.errors,
        batch_rows=point.batch_rows,
        batch_adapters=point.batch_adapters,
        queue_p50_ms=point.queue_p50_ms,
        queue_p95_ms=point.queue_p95_ms,
        waiting_jobs=point.waiting_jobs,
    )


def render_history(points: Sequence[Point]) -> payloads.History:
    """Columns of ``points``, rounded to what a chart can show."""
    return payloads.History(
        at=[point.at for point in points],
        utilization=[_rounded(point.utilization, 4) for point in points],
        busy=[_rounded(point.busy, 4) for point in points],
        memory_used_bytes=[point.memory_used_bytes for point in points],
        requests_per_s=[round(point.requests_per_s, 2) for point in points],
        tokens_per_s=[round(point.tokens_per_s, 1) for point in points],
        batch_rows=[_rounded(point.batch_rows, 2) for point in points],
        batch_adapters=[_rounded(point.batch_adapters, 2) for point in points],
        queue_p50_ms=[_rounded(point.queue_p50_ms, 2) for point in points],
        queue_p95_ms=[_rounded(point.queue_p95_ms, 2) for point in points],
        process_bytes=[point.process_bytes for point in points],
        reserved_bytes=[point.reserved_bytes for point in points],
    )


def render_snapshot(view: LiveView, *, at: float, names: NameBook, teams: frozenset[str]) -> payloads.Snapshot:
    """Everything a viewer in ``teams`` may see of ``view``."""
    return payloads.Snapshot(
        at=at,
        workers=[render_worker(state, names=names, teams=teams) for state in view.states],
        history={key: render_history(points) for key, points in view.points.items()},
    )


def _adapter(row: ResidentAdapter, names: NameBook, teams: frozenset[str]) -> payloads.Adapter:
    # the worker's own word for the version is left out: it would tell another team's name
    return payloads.Adapter(
        digest=row.digest,
        version=names.name(row.digest, teams),
        model=row.model,
        tier=row.tier,
        slot=row.slot,
        size_bytes=row.size_bytes,
        hits=row.hits,
        pinned=row.pinned,
        loaded=row.loaded,
        last_used=row.last_used,
    )


def _model(row: ResidentModel, names: NameBook, teams: frozenset[str]) -> ResidentModel:
    if not _is_version(row.id):
        return row
    name = names.name(row.digest, teams)
    return msgspec.structs.replace(row, id=name or f"another team’s {row.digest[:8]}", version=name)


def _eviction(row: Eviction, names: NameBook, teams: frozenset[str]) -> payloads.Eviction:
    base = row.name if row.kind == "model" and row.name is not None and not _is_version(row.name) else None
    return payloads.Eviction(
        kind=row.kind,
        digest=row.digest,
        name=base or names.name(row.digest, teams),
        reason=_without_names(row.reason, teams),
        tier=row.tier,
        at=row.at,
    )


def _is_version(name: str) -> bool:
    address = parse_address(name)
    return address is not None and address.version is not None


def _without_names(text: str, teams: frozenset[str]) -> str:
    """A worker's sentence without the names of other teams' versions."""
    return _VERSION.sub(lambda found: found[0] if found[1] in teams else "another team’s version", text)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
