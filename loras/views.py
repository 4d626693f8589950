"""HTML pages of adapters: list, detail with its tabs."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET

from controlplane.accounts.principal import Principal
from controlplane.accounts.queries import teams_for_upload
from controlplane.pages import gateway_url, page, web_url
from loras.lineage import draw_lineage
from loras.list_csv import MAX_ROWS, write_csv
from loras.list_order import chosen_order, columns
from loras.page_queries import (
    all_adapters,
    base_model_ids,
    deleted_versions,
    evaluations_of,
    has_adapters,
    list_adapters,
    list_events,
    list_files,
    page_of,
)
from loras.page_rows import AdapterPage, ListFilter, VersionRow
from loras.queries import get_adapter
from loras.readme import readme_of
from loras.residency import residency_of
from loras.services import open_hold
from loras.services.aliases import served_before
from loras.snippets import upload_snippets, usage_snippets
from loras.states import State
from wire.errors import Code, ShoalError


@require_GET
@page
def home(request: HttpRequest, principal: Principal) -> HttpResponse:
    """The start page is the list."""
    return redirect("adapter_list")


@require_GET
@page
def adapter_list(request: HttpRequest, principal: Principal) -> HttpResponse:
    """Search, filters, order and pages live in the address."""
    given, wanted = request.GET, wanted_list(request)
    teams = teams_for_upload(principal)
    shown = {
        "section": "adapters",
        "wanted": wanted,
        "columns": columns(wanted.order),
        "page": list_adapters(principal, wanted, given.get("page", "1")),
        "any": has_adapters(principal),
        "states": [(state.value, state.value.replace("_", " ").capitalize()) for state in State],
        "bases": base_model_ids(),
        "may_upload": bool(teams),
        "first_push": upload_snippets(f"{teams[0]}/my-adapter", web_url(request))[0].text if teams else "",
    }
    return render(request, "loras/list.html", shown)


@require_GET
@page
def adapter_csv(request: HttpRequest, principal: Principal) -> HttpResponse:
    """The list of the same address as CSV."""
    text = write_csv(all_adapters(principal, wanted_list(request), MAX_ROWS))
    headers = {"Content-Disposition": 'attachment; filename="adapters.csv"'}
    return HttpResponse(text, content_type="text/csv; charset=utf-8", headers=headers)


def wanted_list(request: HttpRequest) -> ListFilter:
    """What the address of a list asks for."""
    given = request.GET
    order = chosen_order(given.get("sort", ""))
    return ListFilter(given.get("q", "").strip()[:200], given.get("state", ""), given.get("base", ""), order)


@require_GET
@page
def adapter_detail(request: HttpRequest, principal: Principal, team: str, name: str) -> HttpResponse:
    """Overview: how to use it, who made it."""
    row = get_adapter(principal, team, name)
    adapter = page_of(principal, row)
    facts = adapter.shown.facts if adapter.shown else None
    snippets = usage_snippets(adapter.full_name, gateway_url(), facts.tasks if facts is not None else [])
    readme = readme_of(row, adapter.shown.number) if adapter.shown else None
    residency = residency_of(adapter, team)
    lineage = draw_lineage(adapter, residency or [])
    shown = {"snippets": snippets, "residency": residency, "lineage": lineage, "readme": readme}
    return render_tab(request, adapter, "overview", **shown)


@require_GET
@page
def adapter_versions(request: HttpRequest, principal: Principal, team: str, name: str) -> HttpResponse:
    """All versions and where the aliases point."""
    row = get_adapter(principal, team, name)
    shown = {
        "can_roll_back": served_before(row) is not None,
        "holds": [hold for alias in row.aliases.all() if (hold := open_hold(row, alias.name)) is not None],
        "deleted": deleted_versions(row),
    }
    return render_tab(request, page_of(principal, row), "versions", **shown)


@require_GET
@page
def adapter_files(request: HttpRequest, principal: Principal, team: str, name: str) -> HttpResponse:
    """Files of one version."""
    row = get_adapter(principal, team, name)
    adapter = page_of(principal, row)
    version = chosen_version(request, adapter)
    return render_tab(
        request, adapter, "files", version=version, files=list_files(row, version.number) if version else []
    )


@require_GET
@page
def adapter_report(request: HttpRequest, principal: Principal, team: str, name: str) -> HttpResponse:
    """The verdict on one version."""
    row = get_adapter(principal, team, name)
    adapter = page_of(principal, row)
    version = chosen_version(request, adapter, newest=True)
    runs = evaluations_of(row, version.number) if version is not None else []
    return render_tab(request, adapter, "report", version=version, evaluations=runs)


@require_GET
@page
def adapter_events(request: HttpRequest, principal: Principal, team: str, name: str) -> HttpResponse:
    """Who did what, newest first."""
    adapter = page_of(principal, get_adapter(principal, team, name))
    return render_tab(request, adapter, "events", events=list_events(principal, adapter))


def chosen_version(request: HttpRequest, adapter: AdapterPage, *, newest: bool = False) -> VersionRow | None:
    """The version that ``?version=`` names, else the newest or the one the header shows; ``None`` without versions.

    Raises ``ShoalError(VERSION_NOT_FOUND)``.
    """
    number = request.GET.get("version", "")
    if not number:
        return adapter.newest if newest else adapter.shown
    if not number.isascii() or not number.isdigit():
        raise ShoalError(Code.VERSION_NOT_FOUND, f"{number[:20]!r} is no version number.", param="version")
    return adapter.version(int(number))


def render_tab(request: HttpRequest, adapter: AdapterPage, tab: str, **shown: object) -> HttpResponse:
    """One tab of an adapter's pages."""
    context = {"section": "adapters", "adapter": adapter, "tab": tab, **shown}
    return render(request, f"loras/{tab}.html", context)
