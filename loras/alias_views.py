"""HTML pages that move an alias: a preview by GET, the move by POST."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import msgspec
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from controlplane.accounts.principal import Principal
from controlplane.pages import page
from loras.page_queries import page_of
from loras.page_rows import AdapterPage, AliasRow, differences
from loras.queries import get_adapter
from loras.services import move_alias, rollback
from loras.services.aliases import served_before
from loras.views import chosen_version
from wire.errors import Code, ShoalError
from wire.names import LIVE
from wire.registry import Scope


@require_http_methods(["GET", "POST"])
@page
def move(request: HttpRequest, principal: Principal, team: str, name: str) -> HttpResponse:
    """Points an alias at one version, or sends it a share, if it still points where the preview said."""
    row = get_adapter(principal, team, name, scope=Scope.PUSH)
    adapter = page_of(principal, row)
    alias = request.GET.get("alias", LIVE)
    version = chosen_version(request, adapter)
    if version is None:
        raise ShoalError(Code.VERSION_NOT_FOUND, f"{adapter.full_name} has no version yet.")
    if request.method != "POST":
        title = f"Make version {version.number} {alias}?"
        return render(request, "loras/move_alias.html", _preview(adapter, alias, version.number, title, "Make live"))
    expect, confirm = _expected(request), request.POST.get("confirm") == "true"
    split = _wanted_split(expect, version.number, request.POST.get("share", "100"))
    moved = move_alias(adapter=row, alias=alias, split=split, expect=expect, actor=principal.user, confirm=confirm)
    row_now = AliasRow.of(moved.name, moved.split, moved.moved_at)
    served = f"version {version.number}" if len(moved.split) == 1 else row_now.text
    messages.success(request, f"{adapter.full_name}:{alias} answers with {served}.")
    return redirect("adapter_versions", team, name)


@require_http_methods(["GET", "POST"])
@page
def roll_back(request: HttpRequest, principal: Principal, team: str, name: str) -> HttpResponse:
    """Points ``live`` at what served before."""
    row = get_adapter(principal, team, name, scope=Scope.PUSH)
    adapter = page_of(principal, row)
    target = served_before(row)
    if target is None:
        messages.info(request, f"Nothing served as {adapter.full_name} before; there is nothing to go back to.")
        return redirect("adapter_versions", team, name)
    if request.method != "POST":
        shown = _preview(adapter, LIVE, max(target), f"Roll back to version {max(target)}?", "Roll back")
        return render(request, "loras/move_alias.html", shown | {"action": request.path})
    moved = rollback(adapter=row, actor=principal.user)
    served = AliasRow.of(moved.name, moved.split, moved.moved_at).text
    messages.success(request, f"{adapter.full_name} answers with {served} again.")
    return redirect("adapter_versions", team, name)


def _preview(adapter: AdapterPage, alias: str, number: int, title: str, verb: str) -> dict[str, object]:
    current = adapter.alias(alias)
    before = adapter.version(current.heaviest) if current else None
    after = adapter.version(number)
    address = reverse("move_alias", args=[adapter.team, adapter.name])
    return {
        "section": "adapters",
        "adapter": adapter,
        "alias": alias,
        "before": before,
        "after": after,
        "differences": differences(before, after),
        "no_effect": after.facts is not None and not after.facts.has_effect,
        "expect": json.dumps(current.split if current else None),
        "action": f"{address}?{urlencode({'alias': alias, 'version': number})}",
        "title": title,
        "verb": verb,
        "others": [key for key in (current.split if current else {}) if key != number],
    }


def _wanted_split(current: dict[int, int] | None, number: int, share: str) -> dict[int, int]:
    """``number`` with ``share`` per cent and the version that serves most with the rest; alone for 100. Raises
    ``ShoalError(INVALID_REQUEST)``."""
    others = {key: weight for key, weight in (current or {}).items() if key != number}
    if not share.isascii() or not share.isdigit() or not 1 <= int(share[:4]) <= 100:
        raise ShoalError(Code.INVALID_REQUEST, "The share is a whole number from 1 to 100.", param="share")
    if int(share) == 100 or not others:
        return {number: 100}
    heaviest = max(others, key=lambda key: (others[key], -key))
    return {heaviest: 100 - int(share), number: int(share)}


def _expected(request: HttpRequest) -> dict[int, int] | None:
    """Where the preview said that the alias points. Raises ``ShoalError(INVALID_REQUEST)``."""
    try:
        text = request.POST.get("expect", "null")
        return msgspec.json.decode(text, type=dict[int, int] | None)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ShoalError(Code.INVALID_REQUEST, "The form was changed on its way.", param="expect") from error
