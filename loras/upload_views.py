"""HTML pages of an upload: the form, and the verdict that follows it."""

from __future__ import annotations

from urllib.parse import urlencode

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from controlplane.accounts.principal import Principal
from controlplane.accounts.queries import teams_for_upload
from controlplane.pages import gateway_url, page, web_url
from loras.api.attached import take_evaluation
from loras.page_queries import base_model_ids, page_of
from loras.page_rows import AdapterPage, VersionRow
from loras.queries import get_adapter
from loras.services import answer_question, receive_upload
from loras.services.uploads import IF_BETTER
from loras.snippets import curl_of, upload_snippets, usage_snippets
from loras.uploads.handlers import raise_upload_error
from loras.uploads.listing import unfinished_uploads
from loras.uploads.quotas import check_received
from loras.uploads.receive import received_files
from wire.errors import Code, ShoalError
from wire.names import LIVE, parse_address
from wire.registry import Scope


@require_http_methods(["GET", "POST"])
@page
def upload(request: HttpRequest, principal: Principal) -> HttpResponse:
    """The form; by POST (without scripts) the upload itself, by the same service as the REST API."""
    if request.method != "POST":
        return render(request, "loras/upload.html", _form_context(request, principal))
    raise_upload_error(request.META)
    sent = request.POST
    team = principal.team(sent.get("team", ""), Scope.PUSH)
    files = received_files(request.FILES, sent.getlist("paths[]"))
    check_received(team, files)
    received = receive_upload(
        team=team,
        name=sent.get("adapter", "").strip(),
        files=files,
        actor=principal.user,
        promote=_promotion(sent.get("promote", ""), sent.get("if_better", "")),
        evaluation=take_evaluation(request.FILES),
        message=sent.get("message", "").strip()[:500],
    )
    if not received.created:
        messages.info(request, f"These bytes are {received.version} already; nothing new was made.")
    return redirect(f"{reverse('upload')}?{urlencode({'watch': str(received.version)})}")


@require_GET
@page
def version_verdict(request: HttpRequest, principal: Principal, team: str, name: str, number: int) -> HttpResponse:
    """The verdict card alone, as the upload page replaces it."""
    adapter = page_of(principal, get_adapter(principal, team, name))
    return render(request, "loras/verdict.html", verdict_context(adapter, adapter.version(number)))


@require_http_methods(["GET", "POST"])
@page
def answer(request: HttpRequest, principal: Principal, team: str, name: str, number: int) -> HttpResponse:
    """The one fact that ``needs_input`` asked for; the question itself is on the adapter's page."""
    if request.method != "POST":
        return redirect("adapter_detail", team, name)
    version = get_adapter(principal, team, name, scope=Scope.PUSH).versions.filter(number=number).first()
    if version is None:
        raise ShoalError(Code.VERSION_NOT_FOUND, f"{team}/{name} has no version {number}.")
    field, value = request.POST.get("field", ""), request.POST.get("value", "")
    answer_question(version=version, field=field, value=value, actor=principal.user)
    messages.success(request, f"Thank you. {version} is validated again.")
    return redirect("adapter_detail", team, name)


def _promotion(promote: str, if_better: str) -> bool | str:
    return IF_BETTER if if_better == "true" else promote == "true"


def verdict_context(adapter: AdapterPage, version: VersionRow) -> dict[str, object]:
    """What ``loras/verdict.html`` needs: the command asks the version by its shortest name."""
    number = version.duplicate_of or version.number
    model = adapter.full_name if LIVE in adapter.version(number).aliases else f"{adapter.full_name}@{number}"
    facts = adapter.version(number).facts
    tasks = facts.tasks if facts is not None else []
    return {"adapter": adapter, "version": version, "usage": curl_of(usage_snippets(model, gateway_url(), tasks))}


def _form_context(request: HttpRequest, principal: Principal) -> dict[str, object]:
    teams = teams_for_upload(principal)
    wanted = parse_address(request.GET.get("name", ""))
    team = wanted.name.team if wanted and wanted.name.team in teams else next(iter(teams), "")
    adapter = wanted.name.adapter if wanted and wanted.name.team == team else ""
    placeholder = f"{team}/{adapter or 'my-adapter'}"
    watched = parse_address(request.GET.get("watch", ""))
    verdict = {}
    if watched is not None and watched.version is not None:
        found = page_of(principal, get_adapter(principal, watched.name.team, watched.name.adapter))
        verdict = verdict_context(found, found.version(watched.version))
    return {
        "section": "upload",
        "teams_for_upload": teams,
        "team": team,
        "adapter_name": adapter,
        "placeholder": placeholder,
        "snippets": upload_snippets(placeholder, web_url(request)),
        "verdict_url": reverse("version_verdict", args=["team", "adapter", 0]),
        "bases": base_model_ids(),
        "max_bytes": settings.SHOAL.upload_max_bytes,
        "unfinished": unfinished_uploads(principal),
        "unfinished_kept_hours": round(settings.SHOAL.upload_expires_s / 3600),
        **verdict,
    }
