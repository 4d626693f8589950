"""Pages ``/fleet/`` and ``/fleet/<worker>/``: rendered with what is known now, kept current by the socket."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from controlplane.accounts.principal import principal_of_user
from fleet.cards import blank_card, make_card, memory_text, summarize
from fleet.operations import (
    drain_worker,
    evict_resident,
    pin_resident,
    preview_drain,
    preview_resident,
    resume_worker,
)
from fleet.residents import bars, evictions_of, residents_of
from fleet.rows import WorkerRow, find_worker, list_workers
from fleet.viewers import Viewer, viewer_of
from wire.errors import ShoalError

RANGES = (("1", "1 min"), ("5", "5 min"), ("15", "15 min"), ("1440", "24 h"))
DEFAULT_RANGE = "5"
START_COMMANDS = "python -m sidecar &\npython -m workers"


def chosen_range(request: HttpRequest) -> str:
    """Minutes that the charts show, from the address."""
    wanted = request.GET.get("range", DEFAULT_RANGE)
    return wanted if wanted in dict(RANGES) else DEFAULT_RANGE


@login_required
@require_GET
def fleet(request: HttpRequest) -> HttpResponse:
    """Every worker as a card."""
    rows = list_workers(teams=_viewer(request).teams)
    context = {
        "section": "fleet",
        "summary": summarize(rows),
        "cards": [make_card(row, now=rows.at) for row in rows.workers],
        "blank": blank_card(),
        "live_available": rows.available,
        "start_commands": START_COMMANDS,
        "ranges": RANGES,
        "range": chosen_range(request),
        "evictions": evictions_of(rows.workers),
        "wall": request.GET.get("wall") == "1",
    }
    return render(request, "fleet/fleet.html", context)


@login_required
@require_GET
def worker_detail(request: HttpRequest, key: str) -> HttpResponse:
    """One worker with all of its adapters, and drain or resume with what it would do."""
    viewer = _viewer(request)
    row = _worker(key, viewer)
    rows = list_workers(teams=viewer.teams)
    context = {
        "section": "fleet",
        "row": row,
        "card": make_card(row, now=rows.at, adapters=None),
        "effect": preview_drain(row, rows.workers),
        "operator": viewer.operator,
        "residents": residents_of(row),
        "histograms": (
            ("batch_rows", "Rows in a batch", bars(row.live.batch_rows if row.live else [])),
            ("batch_adapters", "Different adapters in a batch", bars(row.live.batch_adapters if row.live else [])),
        ),
        "memory": memory_text(row.live),
        "evictions": evictions_of([row]),
        "ranges": RANGES,
        "range": chosen_range(request),
    }
    return render(request, "fleet/worker.html", context)


@login_required
@require_POST
def drain(request: HttpRequest, key: str) -> HttpResponse:
    """Drain from the worker's page."""
    return _operate(request, key, verb="drain")


@login_required
@require_POST
def resume(request: HttpRequest, key: str) -> HttpResponse:
    """Resume from the worker's page."""
    return _operate(request, key, verb="resume")


@login_required
@require_http_methods(["GET", "POST"])
def act_on_resident(request: HttpRequest, key: str, digest: str, verb: str) -> HttpResponse:
    """Asks by GET with what it would do, pins, unpins or evicts by POST."""
    viewer = _viewer(request)
    row = _worker(key, viewer)
    if not viewer.operator:
        raise PermissionDenied("Workers serve every team, so only staff may pin or evict.")
    effect = preview_resident(row, list_workers(teams=viewer.teams).workers, digest)
    if effect is None:
        messages.info(request, "It is not resident there any more.")
        return redirect("worker_detail", key=key)
    if request.method != "POST":
        shown = {"section": "fleet", "row": row, "effect": effect, "verb": verb}
        return render(request, "fleet/act_on_resident.html", shown)
    actor = principal_of_user(request.user).user
    try:
        if verb == "evict":
            evict_resident(row=row, digest=digest, actor=actor)
        else:
            pin_resident(row=row, digest=digest, pinned=verb == "pin", actor=actor)
    except ShoalError as error:
        messages.error(request, " ".join(filter(None, (str(error), error.info.hint))))
    else:
        messages.success(request, f"{row.machine}/{row.worker} was asked to {verb} {effect.name}.")
    return redirect("worker_detail", key=key)


def _operate(request: HttpRequest, key: str, *, verb: str) -> HttpResponse:
    viewer = _viewer(request)
    row = _worker(key, viewer)
    if not viewer.operator:
        messages.error(request, "Workers serve every team, so only staff may drain or resume them.")
        return redirect("worker_detail", key=key)
    act, done = (drain_worker, "asked to drain") if verb == "drain" else (resume_worker, "asked to resume")
    try:
        act(row=row, actor=principal_of_user(request.user).user)
    except ShoalError as error:
        messages.error(request, " ".join(filter(None, (str(error), error.info.hint))))
    else:
        messages.success(request, f"{row.machine}/{row.worker} was {done}; its state follows within a second.")
    return redirect("worker_detail", key=key)


def _viewer(request: HttpRequest) -> Viewer:
    return viewer_of(principal_of_user(request.user))


def _worker(key: str, viewer: Viewer) -> WorkerRow:
    row = find_worker(key, teams=viewer.teams)
    if row is None:
        raise Http404
    return row
