"""What follows an accepted upload: ready, or known to be the content of an earlier version, or for another base."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from django.db import transaction
from django.utils import timezone

from fleet.models import BaseModel
from loras.models import Adapter, Version, VersionFile
from loras.registry import publish_version_records
from loras.services.aliases import move_alias
from loras.services.evaluations import release_evaluations
from loras.services.transitions import lock_adapter, move_version
from loras.states import State
from wire.codec import encode_json
from wire.names import LIVE
from wire.reports import Finding, Outcome, Report, Row

CANONICAL_PATH = "adapter.safetensors"


def register_outcome(version: Version, claimed_at: datetime, report: Report) -> bool:
    """Decide an accepted version whose canonical artifact is stored; ``False`` when the claim was lost."""
    with transaction.atomic():
        # one decision at a time: which is first, which base, and who becomes live
        adapter = lock_adapter(version.adapter_id)
        version.adapter = adapter
        base = BaseModel.objects.filter(model_id=report.facts.base_model).first()
        problem = _problem_with_kind(version, report) or _problem_with_base(adapter, base, report)
        if problem is not None:
            refused = msgspec.structs.replace(report, rows=[*report.rows, problem])
            return _reject(version, claimed_at, refused, f"{version} rejected: {problem.code}")
        same = (
            Version.objects.filter(adapter=adapter, digest=report.digest, state=State.READY, deleted_at=None)
            .order_by("number")
            .first()
        )
        if same is not None:
            return _point_to(same, version, claimed_at, report)
        return _make_ready(adapter, base, version, claimed_at, report)


def as_json(report: Report) -> dict[str, Any]:
    """A report as the JSON that its column keeps."""
    found: dict[str, Any] = msgspec.json.decode(encode_json(report))
    return found


def _make_ready(
    adapter: Adapter, base: BaseModel | None, version: Version, claimed_at: datetime, report: Report
) -> bool:
    moved = move_version(
        version=version,
        to=State.READY,
        message=f"{version} is ready: {_what_it_is(report)}, {report.mode}",
        claimed_at=claimed_at,
        values={
            "report": as_json(report),
            "digest": report.digest,
            "mode": report.mode.value,
            "mode_reason": report.mode_reason[:300],
            "ready_at": timezone.now(),
        },
    )
    if not moved:
        return False
    VersionFile.objects.create(
        version=version, artifact_id=report.digest, role=VersionFile.Role.CANONICAL, path=CANONICAL_PATH
    )
    if adapter.base_model is None or adapter.kind != report.kind:
        Adapter.objects.filter(pk=adapter.pk).update(base_model=base, kind=report.kind)
        adapter.base_model, adapter.kind = base, report.kind
    _promote(adapter, version, report.facts.has_effect)
    publish_version_records(version)
    release_evaluations(version=version)
    return True


def _what_it_is(report: Report) -> str:
    if report.kind == Adapter.Kind.FULL:
        return f"fine-tune, {report.facts.architecture or report.facts.base_model}"
    return f"{report.facts.base_model}, rank {report.facts.rank}"


def _promote(adapter: Adapter, version: Version, has_effect: bool) -> None:
    """The first ready version goes live, a later one when its upload asked; one without effect waits for a person."""
    wish = Version.objects.values_list("promote", flat=True).get(pk=version.pk)
    serves_already = adapter.aliases.filter(name=LIVE).exists()
    if has_effect and (wish or not serves_already):
        move_alias(adapter=adapter, alias=LIVE, split={version.number: 100}, actor=version.created_by)


def _point_to(same: Version, version: Version, claimed_at: datetime, report: Report) -> bool:
    moved = _reject(
        version,
        claimed_at,
        report,
        f"{version} holds the same content as {same}",
        duplicate_of=same,
        digest=report.digest,
    )
    if moved and report.facts.has_effect and Version.objects.values_list("promote", flat=True).get(pk=version.pk):
        move_alias(adapter=same.adapter, alias=LIVE, split={same.number: 100}, actor=version.created_by)
    return moved


def _reject(version: Version, claimed_at: datetime, report: Report, message: str, **values: Any) -> bool:
    return move_version(
        version=version,
        to=State.REJECTED,
        message=message,
        claimed_at=claimed_at,
        values={"report": as_json(report), **values},
    )


def _problem_with_kind(version: Version, report: Report) -> Row | None:
    if version.wanted_kind in {"", report.kind}:
        return None
    return Row(
        check="kind",
        outcome=Outcome.FAIL,
        code=Finding.TASK_MISMATCH,
        found=f"The upload was sent as {version.wanted_kind!r}, its files are of the kind {report.kind!r}.",
        todo=f"Send it with kind={report.kind}, or without a kind.",
    )


def _problem_with_base(adapter: Adapter, base: BaseModel | None, report: Report) -> Row | None:
    """Why the upload cannot be a version of this adapter: one name always answers with one base model and kind."""
    full = report.kind == Adapter.Kind.FULL
    if base is None and not full:
        return Row(
            check="base model",
            outcome=Outcome.FAIL,
            code=Finding.BASE_MODEL_UNKNOWN,
            found=f"The base model {report.facts.base_model!r} is not registered any more.",
            todo="Upload again once it is registered, or name another base model.",
        )
    if not adapter.versions.exclude(ready_at=None).exists():
        return None
    if adapter.kind != report.kind:
        kinds = {Adapter.Kind.FULL.value: "fine-tunes", Adapter.Kind.LORA.value: "LoRA adapters"}
        return Row(
            check="kind",
            outcome=Outcome.FAIL,
            code=Finding.BASE_MODEL_CHANGED,
            found=f"{adapter.full_name} holds {kinds[adapter.kind]}; this upload is one of {kinds[report.kind]}.",
            todo="Upload it under another adapter name: requests to one name must always get one kind of model.",
        )
    if not full and adapter.base_model != base:
        return Row(
            check="base model",
            outcome=Outcome.FAIL,
            code=Finding.BASE_MODEL_CHANGED,
            found=f"{adapter.full_name} belongs to {adapter.base_model}; this upload was made for {base}.",
            todo="Upload it under another adapter name: requests to one name must always get one base model.",
        )
    return None
