"""Evaluations: attached to a version, released when it is ready, claimed by one process, decided once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from controlplane.dispatch import dispatch_now, dispatch_on_commit
from controlplane.events.services import record_event
from loras.evaluation.decision import Decision, Measured, Role
from loras.evaluation.rows import parse_rows
from loras.evaluation.states import TRANSITIONS, UNFINISHED, RunState
from loras.models import EvaluationRun, Version
from loras.services.promotion import promote_measured
from loras.states import State
from wire.errors import Code, ShoalError

log = structlog.get_logger("loras.evaluation")

MAX_ATTEMPTS = 2
RUN_TIMEOUT_S = 240.0
# beyond its time-out a run takes this long: waiting for its key, its last request
DEAD_AFTER = timedelta(seconds=RUN_TIMEOUT_S + 120)
UNCLAIMED_AFTER = timedelta(seconds=30)
MAX_OPEN_PER_VERSION = 3
ROWS = 100


@dataclass(frozen=True, slots=True)
class RunClaim:
    """The right to decide one run: it holds while ``claimed_at`` stands in the row."""

    run: EvaluationRun
    claimed_at: datetime


def attach_evaluation(
    *, version: Version, data: bytes, promote_if_better: bool = False, actor: User | None = None
) -> EvaluationRun:
    """Have ``version`` measured on the JSONL ``data`` as soon as it is ready.

    Raises ``ShoalError``: INVALID_REQUEST with the lines that cannot be used, CONFLICT for a version that never will
    be ready, or with too many evaluations waiting.
    """
    rows = parse_rows(data)
    with transaction.atomic():
        version = Version.objects.select_for_update(of=("self",)).select_related("adapter__team").get(pk=version.pk)
        if version.state in {State.REJECTED, State.RETIRED} or version.deleted_at is not None:
            raise ShoalError(Code.CONFLICT, f"{version} is {version.state}; there is nothing to measure.")
        waiting = EvaluationRun.objects.filter(version=version, state__in=UNFINISHED).count()
        if waiting >= MAX_OPEN_PER_VERSION:
            raise ShoalError(Code.CONFLICT, f"{version} has {waiting} evaluations that are not finished yet.")
        run = EvaluationRun.objects.create(
            version=version,
            kind=rows.kind.value,
            rows=data.decode(),
            row_count=len(rows.pairs),
            promote_if_better=promote_if_better,
            created_by=actor,
        )
        _note(run, "evaluation.attached", f"{version}: {run.row_count} rows for {run.kind} attached", actor)
        if version.state == State.READY:
            _queue(run)
    return run


def release_evaluations(*, version: Version) -> None:
    """Queue what waited for ``version`` to be ready, in the transaction that made it so."""
    for run in EvaluationRun.objects.filter(version=version, state=RunState.WAITING):
        _queue(run)


def claim_evaluation(*, run_id: int) -> RunClaim | None:
    """Claim a queued run; ``None`` when it is not waiting, or another run is being measured: one at a time, since the
    process that measures is one of those that validate."""
    now = timezone.now()
    with transaction.atomic():
        # the one lock of all claims: the oldest unfinished row
        first = EvaluationRun.objects.select_for_update().filter(state__in=UNFINISHED).order_by("pk").first()
        if first is None or EvaluationRun.objects.filter(state=RunState.RUNNING).exists():
            return None
        mine = EvaluationRun.objects.filter(pk=run_id, state=RunState.QUEUED)
        if not mine.update(state=RunState.RUNNING, state_since=now, claimed_at=now, attempts=F("attempts") + 1):
            return None
    run = EvaluationRun.objects.select_related("version__adapter__team", "version__adapter__base_model").get(pk=run_id)
    return RunClaim(run, now)


def finish_evaluation(*, claim: RunClaim, lines: Sequence[Measured], decision: Decision) -> bool:
    """Store the table and act on the decision; ``False`` when the claim was lost to the sweeper meanwhile."""
    run = claim.run
    measured = next((line for line in lines if line.role is Role.NEW), None)
    failed = measured is None or not measured.metrics
    values = {
        "results": [line.as_json() for line in lines],
        "error": (measured.problem if measured else "nothing was measured")[:500] if failed else "",
        "finished_at": timezone.now(),
    }
    with transaction.atomic():
        if not _move(run, RunState.FAILED if failed else RunState.DONE, claimed_at=claim.claimed_at, values=values):
            return False
        reason = decision.reason if run.promote_if_better else ""
        if run.promote_if_better and decision.promote:
            live = next((line.name for line in lines if line.role is Role.LIVE), None)
            reason = promote_measured(version=run.version, measured_against=live, reason=reason, actor=run.created_by)
        EvaluationRun.objects.filter(pk=run.pk).update(decision=reason[:500])
        told = ", ".join(f"{name} {value:.3f}" for name, value in (measured.metrics if measured else {}).items())
        text = (
            f"{run.version} could not be measured: {values['error']}" if failed else f"{run.version} measured: {told}"
        )
        _note(run, f"evaluation.{run.state}", text, None)
        if run.promote_if_better:
            _note(run, "evaluation.decided", f"{run.version}: {reason}", run.created_by)
    return True


def release_run(*, claim: RunClaim, problem: str) -> bool:
    """After an error of our own: once more, then failed with ``problem``."""
    if claim.run.attempts >= MAX_ATTEMPTS:
        return _fail(claim.run, claim.claimed_at, problem)
    return _requeue(claim.run, claim.claimed_at)


def sweep_evaluations() -> int:
    """Move on every run that waits too long, whatever process died; how many."""
    from loras.tasks import run_evaluation

    now, moved = timezone.now(), 0
    for run in _rows(EvaluationRun.objects.filter(state=RunState.RUNNING, claimed_at__lt=now - DEAD_AFTER)):
        log.warning("evaluation died", run=str(run), attempt=run.attempts)
        problem = f"The measurement ended {run.attempts} times without a result."
        again = run.attempts < MAX_ATTEMPTS
        moved += _requeue(run, run.claimed_at) if again else _fail(run, run.claimed_at, problem)
    over = Q(version__state__in=[State.REJECTED, State.RETIRED]) | ~Q(version__deleted_at=None)
    for run in _rows(EvaluationRun.objects.filter(over, state=RunState.WAITING)):
        moved += _fail(run, None, f"{run.version} is not in service.")
    if not EvaluationRun.objects.filter(state=RunState.RUNNING).exists():
        lost = Q(dispatched_at=None) | Q(dispatched_at__lt=now - UNCLAIMED_AFTER)
        oldest = EvaluationRun.objects.filter(lost, state=RunState.QUEUED).order_by("pk").first()
        if oldest is not None and dispatch_now(run_evaluation, oldest.pk):
            EvaluationRun.objects.filter(pk=oldest.pk).update(dispatched_at=now)
            moved += 1
    return moved


def dispatch_next() -> None:
    """Hand the oldest queued run to a worker, after one has ended."""
    from loras.tasks import run_evaluation

    pk = EvaluationRun.objects.filter(state=RunState.QUEUED).order_by("pk").values_list("pk", flat=True).first()
    if pk is not None:
        dispatch_now(run_evaluation, pk)


def _queue(run: EvaluationRun) -> None:
    from loras.tasks import run_evaluation

    if _move(run, RunState.QUEUED, values={"dispatched_at": timezone.now()}):
        dispatch_on_commit(run_evaluation, run.pk)


def _requeue(run: EvaluationRun, claimed_at: datetime | None) -> bool:
    return _move(run, RunState.QUEUED, claimed_at=claimed_at, values={"claimed_at": None, "dispatched_at": None})


def _fail(run: EvaluationRun, claimed_at: datetime | None, problem: str) -> bool:
    values = {"error": problem[:500], "finished_at": timezone.now()}
    with transaction.atomic():
        moved = _move(run, RunState.FAILED, claimed_at=claimed_at, values=values)
        if moved:
            _note(run, "evaluation.failed", f"{run.version} could not be measured: {problem}", None)
    return moved


def _move(
    run: EvaluationRun, to: RunState, *, claimed_at: datetime | None = None, values: dict[str, Any] | None = None
) -> bool:
    """Compare-and-swap from the state that the object shows. Raises ``ValueError`` for a move the table lacks."""
    old = RunState(run.state)
    if to not in TRANSITIONS[old]:
        raise ValueError(f"{run}: {old} leads to {sorted(TRANSITIONS[old])}, not to {to}")
    rows = EvaluationRun.objects.filter(pk=run.pk, state=old)
    if claimed_at is not None:
        rows = rows.filter(claimed_at=claimed_at)
    if not rows.update(state=to.value, state_since=timezone.now(), **(values or {})):
        return False
    run.state = to.value
    return True


def _rows(rows: Any) -> list[EvaluationRun]:
    return list(rows.select_related("version__adapter__team")[:ROWS])


def _note(run: EvaluationRun, kind: str, message: str, actor: User | None) -> None:
    record_event(
        kind=kind,
        subject=str(run.version),
        message=message,
        team=run.version.adapter.team,
        actor=actor,
        data={"adapter": run.version.adapter.full_name, "number": run.version.number, "run": run.pk},
    )
