"""Records of adapters and of versions with weights of their own, as gateways and sidecars read them."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Prefetch, Q

from controlplane.events.services import enqueue_outbox
from fleet.registry import manifest_of
from loras.models import Adapter, Version
from loras.states import State
from wire.codec import decode_json, encode_json
from wire.jobs import Task
from wire.names import parse_address, valid_part
from wire.registry import AdapterRecord, Mode, ModelRecord, VersionRecord
from wire.reports import AdapterFacts, Report
from wire.subjects import ADAPTERS_BUCKET, MODELS_BUCKET

DEFAULT_POOL = "default"
ARTIFACT_SOURCE = "artifact:"


def adapter_records(names: list[str] | None = None) -> dict[str, AdapterRecord]:
    """Records by full name, of all adapters or of those among ``names``. One without a ready version has none."""
    ready = Version.objects.filter(state=State.READY, deleted_at=None).prefetch_related("files__artifact")
    rows = Adapter.objects.select_related("team", "base_model").prefetch_related(
        "aliases", Prefetch("versions", queryset=ready, to_attr="ready_versions")
    )
    if names is not None:
        rows = rows.filter(_any_of(names))
    found = {}
    for row in rows:
        versions: list[Version] = row.ready_versions
        if versions:
            found[row.full_name] = AdapterRecord(
                name=row.full_name,
                team=row.team.name,
                base_model=row.base_model.model_id if row.base_model else "",
                versions={version.number: _version(version) for version in versions},
                aliases={
                    alias.name: {int(number): int(weight) for number, weight in alias.split.items()}
                    for alias in row.aliases.all()
                },
            )
    return found


def version_model_records(names: list[str] | None = None) -> dict[str, ModelRecord]:
    """Records by ``team/adapter@number`` of the ready versions served ``merged`` or ``full``: each is a model of its
    own. Of all of them, or of those among ``names``."""
    rows = (
        Version.objects.filter(
            state=State.READY, deleted_at=None, adapter__deleted_at=None, mode__in=[Mode.MERGED, Mode.FULL]
        )
        .select_related("adapter__team", "adapter__base_model")
        .prefetch_related("files__artifact")
    )
    if names is not None:
        rows = rows.filter(_any_version_of(names))
    records = [record for row in rows if (record := _model(row)) is not None]
    return {record.id: record for record in records}


def publish_version_records(version: Version) -> None:
    """Have what the data plane reads of ``version`` and its adapter written again after commit."""
    if version.mode in {Mode.MERGED, Mode.FULL}:
        enqueue_outbox(bucket=MODELS_BUCKET, key=str(version))
    enqueue_outbox(bucket=ADAPTERS_BUCKET, key=version.adapter.full_name)


def publish_adapter_records(adapter: Adapter) -> None:
    """The same for an adapter with all its versions, when it goes or comes back."""
    own = adapter.versions.filter(mode__in=[Mode.MERGED, Mode.FULL]).values_list("number", flat=True)
    for number in own:
        enqueue_outbox(bucket=MODELS_BUCKET, key=f"{adapter.full_name}@{number}")
    enqueue_outbox(bucket=ADAPTERS_BUCKET, key=adapter.full_name)


def facts_of(version: Version) -> AdapterFacts:
    """What validation found the version to be; empty facts before it did."""
    return decode_json(encode_json(version.report), Report).facts if version.report else AdapterFacts()


def _version(version: Version) -> VersionRecord:
    facts = facts_of(version)
    return VersionRecord(
        number=version.number,
        digest=version.digest,
        size_bytes=_canonical_bytes(version),
        rank=facts.rank,
        mode=Mode(version.mode or Mode.PACKED),
        created=_created(version),
        tasks=facts.tasks,
    )


def _model(version: Version) -> ModelRecord | None:
    """``None`` for a merged version whose base is gone, which nobody could serve."""
    facts, base = facts_of(version), version.adapter.base_model
    merged = version.mode == Mode.MERGED
    if merged and base is None:
        return None
    manifest = manifest_of(base) if base is not None else None
    inherited: list[Task] = manifest.tasks if manifest is not None else []
    return ModelRecord(
        id=str(version),
        digest=version.digest,
        source=base.source if merged and base is not None else ARTIFACT_SOURCE,
        tasks=facts.tasks or inherited,
        pool=base.pool if base is not None else DEFAULT_POOL,
        max_tokens=facts.max_tokens or (manifest.max_tokens if manifest is not None else 0),
        dimension=facts.dimension or (manifest.dimension if manifest is not None and merged else None),
        created=_created(version),
        pinned=False,
        # a merged version is a copy of its base's weights, whatever its artifact weighs
        size_bytes=manifest.size_bytes if merged and manifest is not None else _canonical_bytes(version),
        team=version.adapter.team.name,
        artifact=version.digest,
        base_digest=base.digest if merged and base is not None else None,
    )


def _canonical_bytes(version: Version) -> int:
    return next(file.artifact.size_bytes for file in version.files.all() if file.role == "canonical")


def _created(version: Version) -> int:
    return int((version.ready_at or version.created_at).timestamp())


def _any_of(names: Iterable[str]) -> Q:
    wanted = Q(pk__in=[])
    for text in names:
        # a bucket may hold foreign keys, which are the names of no adapter
        team, slash, name = text.partition("/")
        if slash and valid_part(team) and valid_part(name):
            wanted |= Q(team__name=team, name=name)
    return wanted


def _any_version_of(names: Iterable[str]) -> Q:
    wanted = Q(pk__in=[])
    for text in names:
        # most names of the bucket are those of base models
        address = parse_address(text)
        if address is not None and address.version is not None:
            wanted |= Q(
                adapter__team__name=address.name.team, adapter__name=address.name.adapter, number=address.version
            )
    return wanted
