"""The page of dead jobs, with replay for operators."""

from __future__ import annotations

import datetime as dt
import time

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from controlplane.accounts.principal import Principal
from controlplane.pages import page, refusal_text
from fleet.dead_jobs import DeadRow, list_dead_jobs, replay_dead_job
from fleet.viewers import viewer_of
from wire.errors import ShoalError


@require_GET
@page
def dead_jobs(request: HttpRequest, principal: Principal) -> HttpResponse:
    """What left the queue without an answer, newest first."""
    viewer, problem = viewer_of(principal), ""
    try:
        rows = list_dead_jobs(teams=None if viewer.operator else viewer.teams)
    except ShoalError as error:
        rows, problem = [], refusal_text(error)
    shown = {
        "section": "fleet",
        "rows": [(row, _moment(row.died), _refusal(row)) for row in rows],
        "problem": problem,
        "operator": viewer.operator,
    }
    return render(request, "fleet/dead_jobs.html", shown)


def _refusal(row: DeadRow) -> dt.datetime | None:
    """Until when the machine refuses this job's version, while it does."""
    running = row.refused_until is not None and row.refused_until > time.time()
    return _moment(row.refused_until) if running and row.refused_until is not None else None


def _moment(at: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(at, dt.UTC)


@require_POST
@page
def replay(request: HttpRequest, principal: Principal, sequence: int) -> HttpResponse:
    """Publishes a job anew and says what a worker said."""
    if not principal.operator:
        raise PermissionDenied("Replays use every team's workers, so only staff may start them.")
    try:
        done = replay_dead_job(sequence=sequence, actor=principal.user)
    except ShoalError as error:
        messages.error(request, refusal_text(error))
    else:
        (messages.success if done.ok else messages.warning)(request, f"{done.job}: {done.outcome}.")
    return redirect("dead_jobs")
