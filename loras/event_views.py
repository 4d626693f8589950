"""The page of the event feed: who did what in your teams."""

from __future__ import annotations

from dataclasses import dataclass

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from controlplane.accounts.models import Team
from controlplane.accounts.principal import Principal
from controlplane.pages import page
from loras.page_queries import event_row
from loras.queries import events_of

PAGE_ROWS = 50
# first words of kinds, as people name them
KINDS = (
    ("adapter", "Adapters"), ("version", "Versions"), ("alias", "Aliases"), ("canary", "Canaries"),
    ("evaluation", "Evaluations"), ("key", "Keys"), ("member", "People"), ("team", "Teams"), ("worker", "Workers"),
    ("job", "Jobs"), ("base_model", "Base models"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FeedFilter:
    """What the feed is narrowed to; empty means all."""

    team: str = ""
    kind: str = ""
    adapter: str = ""
    actor: str = ""

    @property
    def active(self) -> bool:
        return bool(self.team or self.kind or self.adapter or self.actor)


@require_GET
@page
def feed(request: HttpRequest, principal: Principal) -> HttpResponse:
    """Newest first; filters and pages live in the address."""
    given = request.GET
    wanted = FeedFilter(*(given.get(name, "").strip()[:130] for name in ("team", "kind", "adapter", "actor")))
    rows = events_of(principal, adapter=wanted.adapter, kind=wanted.kind, team=wanted.team, actor=wanted.actor)
    found = Paginator(rows, PAGE_ROWS).get_page(given.get("page", "1"))
    shown = {
        "section": "events",
        "wanted": wanted,
        "page": found,
        "rows": [(event.team.name if event.team else "", event.subject, event_row(event)) for event in found],
        "kinds": KINDS,
        "own_teams": list(Team.objects.filter(pk__in=principal.team_ids).values_list("name", flat=True)),
    }
    return render(request, "loras/feed.html", shown)
