"""The system page: every part of the installation, with a hint when it is red. For operators."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from controlplane.accounts.principal import Principal
from controlplane.pages import page
from fleet.system import read_system


@require_GET
@page
def system(request: HttpRequest, principal: Principal) -> HttpResponse:
    """Read at each load; takes a second or two."""
    if not principal.operator:
        raise PermissionDenied("The system page tells of every team's traffic, so it is for staff.")
    return render(request, "fleet/system.html", {"section": "system", "parts": read_system()})
