"""Records of adapters as gateways read them."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Prefetch, Q

from loras.models import Adapter, Version
from loras.states import State
from wire.names import valid_part
from wire.registry import AdapterRecord, Mode, VersionRecord


def adapter_records(names: list[str] | None = None) -> dict[str, AdapterRecord]:
    """Records by full name, of all adapters or of those among ``names``. One without a ready version has none."""
    ready = Version.objects.filter(state=State.READY).prefetch_related("files__artifact")
    rows = (
        Adapter.objects.exclude(base_model=None)
        .select_related("team", "base_model")
        .prefetch_related("aliases", Prefetch("versions", queryset=ready, to_attr="ready_versions"))
    )
    if names is not None:
        rows = rows.filter(_any_of(names))
    found = {}
    for row in rows:
        versions: list[Version] = row.ready_versions
        if versions and row.base_model is not None:
            found[row.full_name] = AdapterRecord(
                name=row.full_name,
                team=row.team.name,
                base_model=row.base_model.model_id,
                versions={version.number: _version(version) for version in versions},
                aliases={
                    alias.name: {int(number): int(weight) for number, weight in alias.split.items()}
                    for alias in row.aliases.all()
                },
            )
    return found


def _version(version: Version) -> VersionRecord:
    canonical = next(file for file in version.files.all() if file.role == "canonical")
    return VersionRecord(
        number=version.number,
        digest=version.digest,
        size_bytes=canonical.artifact.size_bytes,
        rank=int((version.report or {}).get("facts", {}).get("rank", 0)),
        mode=Mode(version.mode or Mode.PACKED),
        created=int((version.ready_at or version.created_at).timestamp()),
    )


def _any_of(names: Iterable[str]) -> Q:
    wanted = Q(pk__in=[])
    for text in names:
        # a bucket may hold foreign keys, which are the names of no adapter
        team, slash, name = text.partition("/")
        if slash and valid_part(team) and valid_part(name):
            wanted |= Q(team__name=team, name=name)
    return wanted
