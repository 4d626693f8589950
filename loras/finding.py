"""Where a person may want to go, found by parts of a name: pages, adapters, base models, workers, teams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

from django.db.models import Q
from django.urls import reverse

from controlplane.accounts.models import Team
from controlplane.accounts.principal import Principal
from fleet.ids import worker_key
from fleet.models import BaseModel, Worker
from loras.queries import adapters_of

EACH = 6
MAX_QUERY = 200

# address name, icon, label, other words it is found by
_PAGES = (
    ("adapter_list", "adapters", "Adapters", "list loras"),
    ("upload", "upload", "Upload an adapter", "push new version"),
    ("fleet", "fleet", "Fleet", "workers devices live"),
    ("events", "clock", "Events", "feed history audit"),
    ("teams", "team", "Teams", "people members new team"),
    ("keys", "key", "API keys", "new key tokens revoke"),
    ("dead_jobs", "alert", "Dead jobs", "replay failed"),
    ("deleted_adapters", "trash", "Deleted adapters", "restore undo"),
    ("docs", "book", "API reference", "openapi rest docs"),
    ("password_change", "key", "Change password", "account"),
)
_STAFF_PAGES = (
    ("system", "system", "System", "health nats redis celery storage versions"),
    ("admin:index", "admin", "Admin", "django quotas accounts"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Somewhere to go: ``kind`` is said beside the label."""

    kind: str
    icon: str
    label: str
    url: str
    note: str = ""


def find_places(principal: Principal, query: str) -> list[Place]:
    """Up to six of each kind whose names hold every word of ``query``; of nothing asked, the adapters that changed last
    and the pages."""
    words = query.lower().split()
    adapters = list(_adapters(principal, query))
    if not words:
        return [*adapters, *_pages(principal, words)]
    named = [*adapters, *_models(words), *_workers(words), *_teams(principal, words)]
    return [*named, *_pages(principal, words)]


def _pages(principal: Principal, words: list[str]) -> Iterator[Place]:
    for name, icon, label, also in (*_PAGES, *(_STAFF_PAGES if principal.operator else ())):
        if all(word in f"{label} {also}".lower() for word in words):
            yield Place("page", icon, label, reverse(name))


def _adapters(principal: Principal, query: str) -> Iterator[Place]:
    for row in adapters_of(principal, search=query).order_by("-updated_at", "-id")[:EACH]:
        note = row.base_model.model_id if row.base_model else ""
        url = reverse("adapter_detail", args=(row.team.name, row.name))
        yield Place("adapter", "adapters", row.full_name, url, note)


def _models(words: list[str]) -> Iterator[Place]:
    for row in BaseModel.objects.filter(_holds("model_id", words=words))[:EACH]:
        url = f"{reverse('adapter_list')}?{urlencode({'base': row.model_id})}"
        yield Place("base model", "chip", row.model_id, url, "its adapters")


def _workers(words: list[str]) -> Iterator[Place]:
    rows = Worker.objects.filter(_holds("machine", "worker_id", "pool", words=words)).order_by("-last_seen_at")
    for row in rows[:EACH]:
        url = reverse("worker_detail", args=(worker_key(row.machine, row.worker_id),))
        yield Place("worker", "fleet", f"{row.machine}/{row.worker_id}", url, f"pool {row.pool}")


def _teams(principal: Principal, words: list[str]) -> Iterator[Place]:
    rows = Team.objects.filter(_holds("name", words=words), pk__in=principal.team_ids).order_by("name")
    for row in rows[:EACH]:
        yield Place("team", "team", row.name, reverse("team", args=(row.name,)))


def _holds(*fields: str, words: Iterable[str]) -> Q:
    """Rows where every word is in some field."""
    wanted = Q()
    for word in words:
        wanted &= Q.create([(f"{field}__icontains", word) for field in fields], connector=Q.OR)
    return wanted
