"""HTML pages of what happens after ready: compare, retire, delete, restore, resume."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from controlplane.accounts.principal import Principal
from controlplane.pages import page, refusal_text
from loras.api.attached import take_evaluation
from loras.comparison import compare_versions
from loras.models import Version
from loras.page_queries import page_of
from loras.queries import deleted_adapters, get_adapter, get_deleted_adapter, get_version
from loras.services import (
    attach_evaluation,
    delete_adapter,
    delete_version,
    restore_adapter,
    restore_version,
    resume_canary,
    retire_version,
)
from loras.services.removal import DELETED_KEPT
from loras.services.uploads import IF_BETTER
from loras.uploads.handlers import raise_upload_error
from loras.views import render_tab
from wire.errors import ShoalError
from wire.registry import Scope


@dataclass(frozen=True, slots=True)
class Act:
    """One thing to do to a version: the verb on its button, what it means, and what is said afterwards."""

    do: Callable[..., None]
    verb: str
    icon: str
    means: str
    done: str
    danger: bool = False


ACTS: dict[str, Act] = {
    "retire": Act(
        retire_version, "Retire", "retired",
        "Requests by its number are refused from now on. It stays on the list and can be brought back.",
        "is out of service",
    ),
    "delete": Act(
        delete_version, "Delete", "trash",
        "Requests by its number are refused and it leaves every list. It can be restored for seven days.",
        "is deleted; it can be restored for seven days", danger=True,
    ),
    "restore": Act(
        restore_version, "Restore", "rollback",
        "It serves again by its number. No alias moves.",
        "is back",
    ),
}  # fmt: skip


@require_GET
@page
def compare(request: HttpRequest, principal: Principal, team: str, name: str) -> HttpResponse:
    """Two versions line by line; which ones is in the address."""
    row = get_adapter(principal, team, name)
    adapter = page_of(principal, row)
    numbers = [version.number for version in adapter.versions]
    before, after = (_number(request, key) for key in ("before", "after"))
    if before is None or after is None or before == after:
        shown = adapter.shown.number if adapter.shown else 0
        other = next((number for number in numbers if number != shown), None)
        if other is None:
            raise Http404("There is one version only.")
        before, after = min(shown, other), max(shown, other)
    lines = compare_versions(row, before, after)
    groups = [(group, list(found)) for group, found in groupby(lines, key=lambda line: line.group)]
    return render_tab(request, adapter, "compare", before=before, after=after, groups=groups, numbers=numbers)


@require_http_methods(["GET", "POST"])
@page
def act_on_version(
    request: HttpRequest, principal: Principal, team: str, name: str, number: int, verb: str
) -> HttpResponse:
    """Asks by GET, acts by POST."""
    act = ACTS[verb]
    row = get_adapter(principal, team, name, scope=Scope.PUSH)
    version: Version = get_version(row, number)
    if request.method != "POST":
        adapter = page_of(principal, row)
        shown = {"section": "adapters", "adapter": adapter, "version": version, "act": act, "verb": verb}
        return render(request, "loras/act_on_version.html", shown)
    act.do(version=version, actor=principal.user)
    messages.success(request, f"{version} {act.done}.")
    return redirect("adapter_versions", team, name)


@require_http_methods(["GET", "POST"])
@page
def delete(request: HttpRequest, principal: Principal, team: str, name: str) -> HttpResponse:
    """Asks for the name and shows what would break by GET, deletes by POST."""
    row = get_adapter(principal, team, name, scope=Scope.PUSH)
    if request.method != "POST":
        return render(request, "loras/delete_adapter.html", {"section": "adapters", "adapter": page_of(principal, row)})
    delete_adapter(adapter=row, confirm=request.POST.get("confirm", "").strip(), actor=principal.user)
    messages.success(request, f"{row.full_name} is deleted. It can be restored for seven days.")
    return redirect("deleted_adapters")


@require_GET
@page
def deleted(request: HttpRequest, principal: Principal) -> HttpResponse:
    """Adapters that can be restored."""
    rows = [(row, row.deleted_at + DELETED_KEPT) for row in deleted_adapters(principal)[:200] if row.deleted_at]
    return render(request, "loras/deleted.html", {"section": "adapters", "rows": rows})


@require_POST
@page
def restore(request: HttpRequest, principal: Principal, team: str, name: str) -> HttpResponse:
    """Brings a deleted adapter back."""
    row = get_deleted_adapter(principal, team, name, scope=Scope.PUSH)
    restore_adapter(adapter=row, actor=principal.user)
    messages.success(request, f"{row.full_name} is back with its versions and aliases.")
    return redirect("adapter_detail", team, name)


@require_POST
@page
def evaluate(request: HttpRequest, principal: Principal, team: str, name: str, number: int) -> HttpResponse:
    """Attaches rows to a version; what is wrong with them is said on its report."""
    version = get_version(get_adapter(principal, team, name, scope=Scope.PUSH), number)
    raise_upload_error(request.META)
    try:
        attach_evaluation(
            version=version,
            data=take_evaluation(request.FILES),
            promote_if_better=request.POST.get("promote") == IF_BETTER,
            actor=principal.user,
        )
    except ShoalError as error:
        messages.error(request, refusal_text(error))
    else:
        messages.success(request, f"{version} is measured as soon as a worker is free.")
    return redirect(f"{reverse('adapter_report', args=[team, name])}?version={number}")


@require_POST
@page
def resume(request: HttpRequest, principal: Principal, team: str, name: str, alias: str) -> HttpResponse:
    """Puts a held canary back."""
    row = get_adapter(principal, team, name, scope=Scope.PUSH)
    resume_canary(adapter=row, alias=alias, actor=principal.user)
    messages.success(request, f"The canary on {row.full_name}:{alias} goes on; it is judged by requests from now on.")
    return redirect("adapter_versions", team, name)


def _number(request: HttpRequest, key: str) -> int | None:
    text = request.GET.get(key, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
