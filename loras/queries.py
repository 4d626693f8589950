"""Reads of adapters and versions for the REST interface, always limited to the principal's teams."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import OuterRef, Prefetch, Q, QuerySet, Subquery

from controlplane.accounts.principal import Principal
from controlplane.events.models import Event
from loras.models import Adapter, Alias, Version, VersionFile
from wire.errors import Code, ShoalError
from wire.names import nearest_names
from wire.registry import Scope


@dataclass(frozen=True, slots=True)
class ResolvedVersion:
    """A version by number. ``duplicate_upload`` is the number asked for when its content was an earlier version's."""

    version: Version
    duplicate_upload: int | None = None


def adapters_of(
    principal: Principal, *, search: str = "", base_model: str = "", kind: str = "", state: str = ""
) -> QuerySet[Adapter]:
    """Adapters of the principal's teams. ``search`` matches parts of team and adapter names, ``state`` the newest
    version's state."""
    rows = Adapter.objects.filter(team_id__in=principal.team_ids)
    for word in search.lower().split():
        team, slash, name = word.partition("/")
        matching = Q(name__icontains=word) | Q(team__name__icontains=word)
        rows = rows.filter(Q(team__name__endswith=team, name__startswith=name) if slash else matching)
    if base_model:
        rows = rows.filter(base_model__model_id=base_model)
    if kind:
        rows = rows.filter(kind=kind)
    newest = Version.objects.filter(adapter=OuterRef("pk"), duplicate_of=None, deleted_at=None).order_by("-number")
    rows = rows.annotate(newest_number=Subquery(newest.values("number")[:1]))
    rows = rows.annotate(newest_state=Subquery(newest.values("state")[:1]))
    if state:
        rows = rows.filter(newest_state=state)
    return rows.select_related("team", "base_model", "created_by").prefetch_related("aliases")


def get_adapter(principal: Principal, team: str, name: str, *, scope: Scope = Scope.READ) -> Adapter:
    """One adapter. Raises ``ShoalError``: NOT_FOUND with the nearest names, FORBIDDEN without ``scope`` in its team."""
    owner = principal.team(team, scope)
    adapter = adapters_of(principal).filter(team=owner, name=name).first()
    if adapter is None:
        own = [f"{team}/{known}" for known in Adapter.objects.filter(team=owner).values_list("name", flat=True)[:1000]]
        near = nearest_names(f"{team}/{name}", own)
        raise ShoalError(
            Code.NOT_FOUND,
            f"There is no adapter {team}/{name[:80]}.",
            hint=f"Near: {', '.join(near)}." if near else None,
        )
    return adapter


def deleted_adapters(principal: Principal) -> QuerySet[Adapter]:
    """Adapters of the principal's teams that can be restored, last deleted first."""
    rows = Adapter.everything.filter(team_id__in=principal.team_ids).exclude(deleted_at=None)
    return rows.select_related("team", "base_model", "created_by").order_by("-deleted_at", "-id")


def get_deleted_adapter(principal: Principal, team: str, name: str, *, scope: Scope) -> Adapter:
    """The adapter of that name that was deleted last. Raises ``ShoalError``: NOT_FOUND, FORBIDDEN."""
    owner = principal.team(team, scope)
    found = deleted_adapters(principal).filter(team=owner, name=name).first()
    if found is None:
        raise ShoalError(Code.NOT_FOUND, f"No adapter {team}/{name[:80]} was deleted within the last seven days.")
    return found


def versions_of(adapter: Adapter, *, deleted: bool = False) -> QuerySet[Version]:
    """Versions of one adapter, newest first, without uploads that turned out to be an earlier version's content; those
    that are deleted and may be restored, when asked for."""
    return version_rows().filter(adapter=adapter, duplicate_of=None, deleted_at__isnull=not deleted)


def get_version(adapter: Adapter, number: int) -> Version:
    """The version of exactly that number. Raises ``ShoalError(VERSION_NOT_FOUND)``."""
    version = version_rows().filter(adapter=adapter, number=number).first()
    if version is None:
        raise ShoalError(
            Code.VERSION_NOT_FOUND,
            f"{adapter.full_name} has no version {number}.",
            hint=f"The newest is {adapter.last_number}." if adapter.last_number else None,
        )
    return version


def resolve_version(adapter: Adapter, number: int) -> ResolvedVersion:
    """For readers: the version of that number, or the earlier one with its content. What changes a version takes
    :func:`get_version`, so that nothing happens to a version that was not named. Raises
    ``ShoalError(VERSION_NOT_FOUND)``."""
    version = get_version(adapter, number)
    if version.duplicate_of_id is not None:
        return ResolvedVersion(version_rows().get(pk=version.duplicate_of_id), number)
    return ResolvedVersion(version)


def version_rows() -> QuerySet[Version]:
    """Versions with what their body shows, in a fixed number of queries."""
    files = VersionFile.objects.select_related("artifact").order_by("role", "path")
    return Version.objects.select_related("adapter__team", "created_by").prefetch_related(
        Prefetch("files", queryset=files), Prefetch("adapter__aliases", queryset=Alias.objects.order_by("name"))
    )


def events_of(
    principal: Principal, *, adapter: str = "", kind: str = "", team: str = "", actor: str = ""
) -> QuerySet[Event]:
    """Events of the principal's teams, newest first; of one adapter and its versions when it is named. ``kind`` is a
    kind or its first word (``alias`` for ``alias.moved``). Operators also see what belongs to no team: the workers'."""
    seen = Q(team_id__in=principal.team_ids)
    if principal.operator:
        seen |= Q(team=None)
    rows = Event.objects.filter(seen).select_related("team", "actor")
    if adapter:
        rows = rows.filter(Q(subject=adapter) | Q(subject__startswith=f"{adapter}@"))
    if kind:
        rows = rows.filter(Q(kind=kind) | Q(kind__startswith=f"{kind}."))
    if team:
        rows = rows.filter(team__name=team)
    if actor:
        rows = rows.filter(actor__username=actor)
    return rows


def canonical_exists(sha256: str) -> bool:
    """Whether some version's canonical artifact has this SHA-256: the only content that machines may fetch."""
    return VersionFile.objects.filter(artifact_id=sha256, role=VersionFile.Role.CANONICAL).exists()
