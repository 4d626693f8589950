"""The page that finds everything; the palette shows its list in a dialog."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from controlplane.accounts.principal import Principal
from controlplane.pages import page
from loras.finding import MAX_QUERY, find_places


@never_cache
@require_GET
@page
def find(request: HttpRequest, principal: Principal) -> HttpResponse:
    """Places that hold every word of ``?q=``: a page, or for the palette its list alone."""
    query = request.GET.get("q", "").strip()[:MAX_QUERY]
    shown = {"query": query, "places": find_places(principal, query)}
    alone = request.headers.get("x-requested-with") == "fetch"
    return render(request, "loras/places.html" if alone else "loras/find.html", shown)
