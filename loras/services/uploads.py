"""Receiving an upload: content into the store, a version with the next number, its validation on the queue."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Max
from django.utils import timezone

from controlplane.accounts.models import Team
from controlplane.events.services import record_event
from fleet.models import BaseModel
from loras.evaluation.rows import parse_rows
from loras.models import Adapter, Version, VersionFile
from loras.services.aliases import move_alias
from loras.services.content import store_content
from loras.services.evaluations import attach_evaluation
from loras.services.transitions import lock_adapter, move_version
from loras.services.validations import answer_question, start_validation
from loras.states import State
from loras.storage import artifact_store, is_intact
from loras.uploads.quotas import check_counts
from loras.uploads.receive import ReceivedFile, fingerprint_of
from wire.errors import Code, ShoalError
from wire.names import LIVE, FullName, nearest_names, parse_full_name

IF_BETTER = "if_better"
SAME_BYTES_COUNT_IN = [State.RECEIVING, State.VALIDATING, State.NEEDS_INPUT, State.READY]


@dataclass(frozen=True, slots=True)
class _Wishes:
    """What the sender said beside the files."""

    base_model: str
    kind: str
    promote: bool
    message: str
    choice: str


@dataclass(frozen=True, slots=True)
class Received:
    """``created`` is false when these bytes were an existing version's already."""

    version: Version
    created: bool


def receive_upload(
    *,
    team: Team,
    name: str,
    files: Sequence[ReceivedFile],
    actor: User | None = None,
    base_model: str = "",
    kind: str = "",
    promote: bool | str = False,
    message: str = "",
    choice: str = "",
    evaluation: bytes = b"",
) -> Received:
    """Make a version of ``team/name`` from received files and queue its validation; the adapter is made if new.

    Bytes equal to those of a version that is not rejected or retired give that version; whatever of its content was
    lost is kept anew, and the artifact that workers load is made again by a validation under the next number.
    ``promote`` is true, false, or ``if_better``: when the attached ``evaluation`` (JSONL) says so. Raises
    ``ShoalError``: INVALID_NAME, INVALID_REQUEST (unknown base model), CONFLICT (another kind, or the base model is not
    that of the version with the same bytes), QUOTA_EXCEEDED, STORAGE_FULL.
    """
    full_name = check_name(team, name)
    check_base_model(base_model)
    if_better = checked_evaluation(promote, evaluation)
    wishes = _Wishes(base_model, kind, promote is True, message, choice)
    fingerprint = fingerprint_of(files)
    adapter = Adapter.objects.filter(team=team, name=full_name.adapter).first()
    damaged = _damaged_versions(adapter, fingerprint)
    same = _same_bytes(adapter, fingerprint, damaged)
    if same is not None:
        _check_same_base(same, base_model)
    for file in files:
        store_content(file.location, file.sha256, file.size_bytes)
    if same is None:
        with transaction.atomic():
            # under the team's lock: two uploads must not both take the last free place
            Team.objects.select_for_update().get(pk=team.pk)
            check_counts(team, full_name.adapter)
            adapter = _adapter(team, full_name, kind, actor)
            # asked again under the lock: another upload of these bytes may have been faster
            same = _same_bytes(adapter, fingerprint, damaged)
            if same is None:
                version = _make_version(adapter, files, fingerprint, actor, wishes)
                if evaluation:
                    attach_evaluation(version=version, data=evaluation, promote_if_better=if_better, actor=actor)
                return Received(version, created=True)
            _check_same_base(same, base_model)
    _apply_wishes(same, base_model, wishes.promote, actor)
    if evaluation:
        attach_evaluation(version=same, data=evaluation, promote_if_better=if_better, actor=actor)
    return Received(same, created=False)


def checked_evaluation(promote: bool | str, evaluation: bytes) -> bool:
    """Whether promotion depends on ``evaluation``, whose rows are read once before anything is stored. Raises
    ``ShoalError(INVALID_REQUEST)``."""
    if evaluation:
        parse_rows(evaluation)
    if promote == IF_BETTER and not evaluation:
        raise ShoalError(
            Code.INVALID_REQUEST,
            f"promote={IF_BETTER} needs rows to measure on.",
            param="evaluation",
            hint="Attach them as the file `evaluation`, JSON lines.",
        )
    return promote == IF_BETTER


def check_name(team: Team, name: str) -> FullName:
    """The full name of an adapter of ``team``. Raises ``ShoalError(INVALID_NAME)``."""
    full_name = parse_full_name(f"{team.name}/{name}")
    taken = BaseModel.objects.filter(model_id__iexact=str(full_name)).first()
    if taken is not None:
        raise ShoalError(Code.INVALID_NAME, f"{full_name} is the name of a base model.", param="name")
    return full_name


def check_base_model(base_model: str) -> None:
    """Raises ``ShoalError(INVALID_REQUEST)`` naming the registered ones when ``base_model`` is not one of them."""
    if not base_model:
        return
    known = list(BaseModel.objects.values_list("model_id", flat=True))
    if base_model not in known:
        near = nearest_names(base_model, known) or known[:5]
        raise ShoalError(
            Code.INVALID_REQUEST,
            f"The base model {base_model[:200]!r} is not registered.",
            param="base_model",
            hint=f"Registered: {', '.join(near)}." if near else "No base model is registered yet.",
        )


def _same_bytes(adapter: Adapter | None, fingerprint: str, damaged: Collection[int]) -> Version | None:
    if adapter is None:
        return None
    rows = Version.objects.filter(
        adapter=adapter, upload_fingerprint=fingerprint, state__in=SAME_BYTES_COUNT_IN, deleted_at=None
    )
    return rows.exclude(pk__in=damaged).select_related("adapter__team").order_by("number").first()


def _damaged_versions(adapter: Adapter | None, fingerprint: str) -> list[int]:
    """Ready versions of these bytes whose canonical artifact is lost or broken: a validation makes it again."""
    if adapter is None:
        return []
    store = artifact_store()
    rows = Version.objects.filter(adapter=adapter, upload_fingerprint=fingerprint, state=State.READY)
    return [pk for pk, digest in rows.values_list("pk", "digest") if not is_intact(store, digest)]


def _check_same_base(same: Version, base_model: str) -> None:
    """The same bytes for another base model are another adapter. Raises ``ShoalError(CONFLICT)``."""
    asks_for_it = ((same.report or {}).get("question") or {}).get("field") == "base_model"
    if not base_model or (same.state == State.NEEDS_INPUT and asks_for_it):
        return
    known = ((same.report or {}).get("facts") or {}).get("base_model") or same.wanted_base_model
    if known != base_model:
        found = f"is for {known}" if known else f"is {same.state} for the base model that its configuration names"
        raise ShoalError(
            Code.CONFLICT,
            f"These bytes are {same} already, which {found}; this upload is for {base_model}.",
            param="base_model",
            hint="Upload under another adapter name: requests to one name must always get one base model.",
        )


def _adapter(team: Team, name: FullName, kind: str, actor: User | None) -> Adapter:
    """The adapter's locked row, made when it is new."""
    # numbers go on after a deleted adapter's: @3 never means two things
    before = Adapter.everything.filter(team=team, name=name.adapter).aggregate(highest=Max("last_number"))["highest"]
    fresh = {"kind": kind or Adapter.Kind.LORA, "created_by": actor, "last_number": before or 0}
    adapter, created = Adapter.objects.get_or_create(team=team, name=name.adapter, defaults=fresh)
    if created:
        record_event(
            kind="adapter.created", subject=str(name), message=f"Adapter {name} created", team=team, actor=actor
        )
    adapter = lock_adapter(adapter.pk)
    if kind and adapter.kind != kind and adapter.versions.exclude(ready_at=None).exists():
        raise ShoalError(Code.CONFLICT, f"{name} is of the kind {adapter.kind}; this upload says {kind}.", param="kind")
    return adapter


def _make_version(
    adapter: Adapter,
    files: Sequence[ReceivedFile],
    fingerprint: str,
    actor: User | None,
    wishes: _Wishes,
) -> Version:
    Adapter.objects.filter(pk=adapter.pk).update(last_number=F("last_number") + 1, updated_at=timezone.now())
    adapter.refresh_from_db(fields=["last_number", "updated_at"])
    version = Version.objects.create(
        adapter=adapter,
        number=adapter.last_number,
        upload_fingerprint=fingerprint,
        wanted_base_model=wishes.base_model,
        wanted_kind=wishes.kind,
        wanted_choice=wishes.choice,
        promote=wishes.promote,
        message=wishes.message[:500],
        size_bytes=sum(file.size_bytes for file in files),
        created_by=actor,
    )
    VersionFile.objects.bulk_create(
        VersionFile(version=version, artifact_id=file.sha256, path=file.path) for file in files
    )
    move_version(
        version=version,
        to=State.VALIDATING,
        message=f"{version} received: {len(files)} files, {version.size_bytes} bytes",
        actor=actor,
    )
    start_validation(version_id=version.pk)
    return version


def _apply_wishes(version: Version, base_model: str, promote: bool, actor: User | None) -> None:
    """What the repeated upload asks beyond its bytes: an answer to the open question, or to become live."""
    if promote and version.state == State.READY:
        move_alias(adapter=version.adapter, alias=LIVE, split={version.number: 100}, actor=actor)
    elif promote:
        Version.objects.filter(pk=version.pk).update(promote=True)
    question = (version.report or {}).get("question") or {}
    if base_model and version.state == State.NEEDS_INPUT and question.get("field") == "base_model":
        answer_question(version=version, field="base_model", value=base_model, actor=actor)
