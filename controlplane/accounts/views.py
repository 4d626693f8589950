"""HTML pages of accounts: API keys."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from controlplane.accounts.forms import KeyForm, KeyLimitsForm
from controlplane.accounts.principal import Principal
from controlplane.accounts.queries import get_key_to_revoke, list_keys
from controlplane.accounts.services import change_api_key, issue_api_key, revoke_api_key
from controlplane.pages import gateway_url, page, web_url
from wire.registry import Scope


@never_cache
@require_http_methods(["GET", "POST"])
@page
def keys(request: HttpRequest, principal: Principal) -> HttpResponse:
    """The team's keys; by POST a new one, whose secret is in this one answer and nowhere else."""
    form = KeyForm(principal, request.POST if request.method == "POST" else None)
    issued = None
    if form.is_valid():
        team = principal.team(form.cleaned_data["team"], Scope.READ)
        issued = issue_api_key(
            team=team,
            name=form.cleaned_data["name"],
            scopes=form.chosen_scopes,
            actor=principal.user,
            expires_at=form.expires_at,
            granted=principal.grantable(team.pk),
        )
        form = KeyForm(principal)
    addresses = {"web_url": web_url(request), "gateway_url": gateway_url()}
    shown = {"section": "keys", "rows": list_keys(principal), "form": form, "issued": issued, **addresses}
    return render(request, "accounts/keys.html", shown)


@require_http_methods(["GET", "POST"])
@page
def change_key(request: HttpRequest, principal: Principal, key_id: int) -> HttpResponse:
    """Name and limits of a key, for owners of its team."""
    key = get_key_to_revoke(principal, key_id)
    principal.team(key.team.name, Scope.ADMIN)
    own = {name: getattr(key, name) for name in KeyLimitsForm.base_fields}
    form = KeyLimitsForm(request.POST) if request.method == "POST" else KeyLimitsForm(initial=own)
    if not form.is_bound or not form.is_valid():
        return render(request, "accounts/change_key.html", {"section": "keys", "key": key, "form": form})
    name = form.cleaned_data["name"]
    if change_api_key(key=key, name=name, expires_at=key.expires_at, limits=form.limits, actor=principal.user):
        messages.success(request, f"The key {name}: {form.limits}.")
    else:
        messages.error(request, f"The key {key.prefix}… is revoked; make a new one.")
    return redirect("keys")


@require_http_methods(["GET", "POST"])
@page
def revoke_key(request: HttpRequest, principal: Principal, key_id: int) -> HttpResponse:
    """Asks by GET, revokes by POST."""
    key = get_key_to_revoke(principal, key_id)
    if request.method != "POST":
        return render(request, "accounts/revoke_key.html", {"section": "keys", "key": key})
    revoke_api_key(key=key, actor=principal.user)
    messages.success(request, f"The key {key.name} ({key.prefix}…) is revoked.")
    return redirect("keys")
