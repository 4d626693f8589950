"""Queries of the adapter pages. Everything is limited to the principal's teams."""

from __future__ import annotations

import msgspec
from django.core.paginator import Paginator
from django.db.models import F, OuterRef, QuerySet, Subquery

from controlplane.accounts.principal import Principal, allows
from controlplane.events.models import Event
from fleet.models import BaseModel
from loras.list_order import ordered
from loras.metrics.glance import glance_of
from loras.models import Adapter, Alias, EvaluationRun, Version, VersionFile
from loras.page_rows import AdapterPage, AdapterRow, AliasRow, EventRow, ListFilter, ListPage, VersionRow
from loras.queries import adapters_of, events_of
from loras.states import State
from wire.names import LIVE
from wire.registry import Scope
from wire.reports import Report

PAGE_ROWS = 25
EVENT_ROWS = 100

# kind of event → icon of the sprite, colour class
_EVENT_LOOKS = {
    "adapter.created": ("plus", ""),
    "version.receiving": ("upload", ""),
    "version.validating": ("upload", ""),
    "version.ready": ("check-circle", "ok"),
    "version.needs_input": ("question", "note"),
    "version.rejected": ("fail", "fail"),
    "version.retired": ("retired", ""),
    "alias.moved": ("move", "accent"),
    "alias.removed": ("tag", ""),
    "version.deleted": ("trash", ""),
    "version.restored": ("rollback", "ok"),
    "adapter.deleted": ("trash", "fail"),
    "adapter.restored": ("rollback", "ok"),
    "canary.held": ("pause", "fail"),
    "canary.resumed": ("move", "note"),
    "evaluation.attached": ("file", ""),
    "evaluation.done": ("check-circle", "ok"),
    "evaluation.failed": ("alert", "fail"),
    "evaluation.decided": ("info", "accent"),
    "key.issued": ("key", ""),
    "key.changed": ("key", ""),
    "key.revoked": ("key", "fail"),
    "team.created": ("team", ""),
    "member.added": ("user", "ok"),
    "member.changed": ("user", ""),
    "member.removed": ("user", "fail"),
    "job.replayed": ("rollback", ""),
    "base_model.registered": ("chip", ""),
}


def page_of(principal: Principal, adapter: Adapter) -> AdapterPage:
    """Everything the pages of one adapter show, in a fixed number of queries."""
    # live first, it is what most people ask for
    aliases = sorted(
        (_alias_row(alias) for alias in adapter.aliases.all()), key=lambda row: (row.name != LIVE, row.name)
    )
    versions = adapter.versions.filter(deleted_at=None).select_related("created_by", "duplicate_of").order_by("-number")
    return AdapterPage(
        team=adapter.team.name,
        name=adapter.name,
        base_model=adapter.base_model.model_id if adapter.base_model else "",
        created_by=adapter.created_by.get_username() if adapter.created_by else "",
        created_at=adapter.created_at,
        updated_at=adapter.updated_at,
        aliases=aliases,
        versions=[_version_row(version, aliases) for version in versions],
        kind=adapter.kind,
        usage=glance_of(adapter),
        may_push=allows(principal.grants.get(adapter.team_id, frozenset()), Scope.PUSH),
    )


def deleted_versions(adapter: Adapter) -> list[Version]:
    """Versions that can be restored, last deleted first."""
    return list(adapter.versions.exclude(deleted_at=None).order_by("-deleted_at")[:50])


def evaluations_of(adapter: Adapter, number: int) -> list[EvaluationRun]:
    """Evaluations of one version, newest first."""
    runs = EvaluationRun.objects.filter(version__adapter=adapter, version__number=number)
    return list(runs.select_related("created_by").order_by("-pk")[:10])


def list_adapters(principal: Principal, wanted: ListFilter, page: str | int) -> ListPage:
    """One page of adapters in the order that is wanted. A page beyond the last one is the last one."""
    found = Paginator(_listed(principal, wanted), PAGE_ROWS).get_page(page)
    return ListPage(
        rows=[_adapter_row(adapter) for adapter in found.object_list],
        total=found.paginator.count,
        first=found.start_index(),
        last=found.end_index(),
        previous=found.previous_page_number() if found.has_previous() else None,
        next=found.next_page_number() if found.has_next() else None,
    )


def all_adapters(principal: Principal, wanted: ListFilter, most: int) -> list[AdapterRow]:
    """Every page of the list at once, ``most`` rows of it."""
    return [_adapter_row(adapter) for adapter in _listed(principal, wanted)[:most]]


def has_adapters(principal: Principal) -> bool:
    """Whether the principal's teams have any adapter at all."""
    return adapters_of(principal).exists()


def base_model_ids() -> list[str]:
    """Ids of all base models."""
    return list(BaseModel.objects.order_by("model_id").values_list("model_id", flat=True))


def list_files(adapter: Adapter, number: int) -> list[VersionFile]:
    """Files of one version with their artifacts: what was uploaded, then what workers load."""
    files = VersionFile.objects.filter(version__adapter=adapter, version__number=number)
    return list(files.select_related("artifact").order_by(F("role").desc(), "path"))


def list_events(principal: Principal, page: AdapterPage) -> list[EventRow]:
    """The newest events about the adapter and its versions."""
    events = events_of(principal, adapter=page.full_name).filter(team__name=page.team)[:EVENT_ROWS]
    return [event_row(event) for event in events]


def event_row(event: Event) -> EventRow:
    """How a feed shows one event."""
    icon, tone = _EVENT_LOOKS.get(event.kind, ("info", ""))
    actor = event.actor.get_username() if event.actor else ""
    return EventRow(event.kind, icon, tone, event.message, actor, event.created_at)


def _listed(principal: Principal, wanted: ListFilter) -> QuerySet[Adapter]:
    sizes = Version.objects.filter(adapter=OuterRef("pk"), duplicate_of=None).order_by("-number").values("size_bytes")
    rows = adapters_of(principal, search=wanted.search, base_model=wanted.base_model, state=wanted.state)
    return ordered(rows.annotate(newest_size_bytes=Subquery(sizes[:1])), wanted.order)


def _version_row(version: Version, aliases: list[AliasRow]) -> VersionRow:
    return VersionRow(
        number=version.number,
        state=State(version.state),
        digest=version.digest,
        mode=version.mode,
        mode_reason=version.mode_reason,
        size_bytes=version.size_bytes,
        message=version.message,
        created_by=version.created_by.get_username() if version.created_by else "",
        created_at=version.created_at,
        ready_at=version.ready_at,
        duplicate_of=version.duplicate_of.number if version.duplicate_of else None,
        report=msgspec.convert(version.report, Report) if version.report else None,
        aliases=[alias.name for alias in aliases if version.number in alias.split],
    )


def _adapter_row(adapter: Adapter) -> AdapterRow:
    live = next((alias for alias in adapter.aliases.all() if alias.name == LIVE), None)
    return AdapterRow(
        team=adapter.team.name,
        name=adapter.name,
        base_model=adapter.base_model.model_id if adapter.base_model else "",
        state=getattr(adapter, "newest_state", None) or "empty",
        live=_alias_row(live).text if live else "",
        versions=adapter.last_number,
        size_bytes=getattr(adapter, "newest_size_bytes", None),
        updated_at=adapter.updated_at,
    )


def _alias_row(alias: Alias) -> AliasRow:
    return AliasRow.of(alias.name, alias.split, alias.moved_at)
