"""A version's validation: queued, claimed by one process, run in a sandbox, decided in one transaction."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import structlog
from django.conf import settings
from django.contrib.auth.models import User
from django.db import DatabaseError, transaction
from django.db.models import F
from django.utils import timezone

from controlplane.dispatch import dispatch_now, dispatch_on_commit
from fleet.models import BaseModel
from fleet.registry import manifest_of
from loras.models import Adapter, Version
from loras.services.content import store_content
from loras.services.registration import as_json, register_outcome
from loras.services.transitions import move_version
from loras.states import State
from loras.storage import MissingContent, artifact_store
from loras.validation.limits import SandboxLimits
from loras.validation.outcome import Ending, ValidationOutcome
from loras.validation.runner import run_validation
from wire.errors import Code, ShoalError
from wire.reports import Finding, Outcome, Report, Row
from wire.validation import UploadedFile, ValidationRequest

log = structlog.get_logger("loras.validation")

MAX_ATTEMPTS = 2
# how long what a later try may cure (no room, no database) is tried again, every time the sweeper comes by
PATIENCE = timedelta(hours=1)
# what a question may ask for → the column that keeps the answer
ANSWERABLE = {"base_model": "wanted_base_model", "kind": "wanted_kind", "choice": "wanted_choice"}


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to decide one version: it holds while ``claimed_at`` stands in the row."""

    version: Version
    claimed_at: datetime
    attempt: int


def start_validation(*, version_id: int) -> None:
    """Queue the validation of a version in state ``validating`` once the transaction is committed."""
    from loras.tasks import validate_version

    Version.objects.filter(pk=version_id).update(dispatched_at=timezone.now())
    dispatch_on_commit(validate_version, version_id)


def claim_validation(*, version_id: int) -> Claim | None:
    """Claim a version for validation; ``None`` when it is not waiting for one, so that a task may run twice."""
    now = timezone.now()
    waiting = Version.objects.filter(pk=version_id, state=State.VALIDATING, claimed_at=None)
    if not waiting.update(claimed_at=now, attempts=F("attempts") + 1):
        return None
    version = Version.objects.select_related("adapter__team", "adapter__base_model").get(pk=version_id)
    return Claim(version, now, version.attempts)


def validate_claimed(claim: Claim) -> None:
    """Run the validation of ``claim`` and decide. The work directory is gone afterwards, whatever happened."""
    root = settings.SHOAL.home / "validation"
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=f"version-{claim.version.pk}-") as directory:
        request = _request(claim.version, Path(directory))
        outcome = run_validation(request, limits=_limits())
        finish_validation(claim=claim, outcome=outcome)


def finish_validation(*, claim: Claim, outcome: ValidationOutcome) -> bool:
    """Decide ``claim`` by ``outcome``; ``False`` when the claim was lost to the sweeper meanwhile.

    A validation that crashed or ran out of time is tried once more, then the version is rejected with its report.
    """
    version, report = claim.version, outcome.report
    log.info(
        "validated", version=str(version), ending=outcome.ending.value, accepted=outcome.accepted,
        attempt=claim.attempt, seconds=round(report.seconds, 2),
    )  # fmt: skip
    if outcome.ending is not Ending.DECIDED and claim.attempt < MAX_ATTEMPTS:
        return release_claim(version_id=version.pk, claimed_at=claim.claimed_at)
    if outcome.accepted and outcome.canonical_path is not None:
        _store_canonical(outcome.canonical_path, report.digest)
        return register_outcome(claim.version, claim.claimed_at, report)
    to = State.NEEDS_INPUT if outcome.needs_input else State.REJECTED
    return move_version(
        version=version,
        to=to,
        message=f"{version} {_verdict(to, report)}",
        claimed_at=claim.claimed_at,
        values={"report": as_json(report)},
    )


def release_claim(*, version_id: int, claimed_at: datetime) -> bool:
    """Give a claim back and queue the validation again; ``False`` when it was not held any more."""
    from loras.tasks import validate_version

    held = Version.objects.filter(pk=version_id, state=State.VALIDATING, claimed_at=claimed_at)
    if not held.update(claimed_at=None, dispatched_at=timezone.now()):
        return False
    dispatch_now(validate_version, version_id)
    return True


def abandon_claim(*, claim: Claim, error: Exception) -> bool:
    """After an error of our own: what a later try may cure (no room, no database) waits for the sweeper and costs no
    attempt, for an hour; content that is gone is said at once; anything else is tried once more and then rejected.
    ``False`` when the claim was lost."""
    if isinstance(error, MissingContent):
        found = f"The server has lost a file of this upload (SHA-256 {error})."
        return _reject_without_verdict(claim, found, "Upload it again: the server keeps the files anew.")
    if isinstance(error, (DatabaseError, OSError)) or (isinstance(error, ShoalError) and error.retryable):
        if timezone.now() - claim.version.state_since > PATIENCE:
            found = f"The server could not validate this upload for an hour; last: {str(error)[:200]}"
            todo = (
                "Nothing is known to be wrong with the files. Tell the people who run this server, then upload again."
            )
            return _reject_without_verdict(claim, found, todo)
        held = Version.objects.filter(
            pk=claim.version.pk, state=State.VALIDATING, claimed_at=claim.claimed_at, attempts__gt=0
        )
        return bool(held.update(claimed_at=None, dispatched_at=timezone.now(), attempts=F("attempts") - 1))
    if claim.attempt < MAX_ATTEMPTS:
        return release_claim(version_id=claim.version.pk, claimed_at=claim.claimed_at)
    return reject_crashed(version=claim.version, claimed_at=claim.claimed_at)


def reject_crashed(*, version: Version, claimed_at: datetime) -> bool:
    """Reject a version whose validation ended with its process too often."""
    row = Row(
        check="validation",
        outcome=Outcome.FAIL,
        code=Finding.VALIDATION_CRASHED,
        found=f"The validation of this upload ended {version.attempts} times without a verdict.",
        todo="Check the files with safetensors on your side. If they load there, tell the people who run this server.",
    )
    return move_version(
        version=version,
        to=State.REJECTED,
        message=f"{version} rejected: {Finding.VALIDATION_CRASHED}",
        claimed_at=claimed_at,
        values={"report": as_json(Report(rows=[row]))},
    )


def _reject_without_verdict(claim: Claim, found: str, todo: str) -> bool:
    row = Row(check="validation", outcome=Outcome.FAIL, code=Finding.SERVER_FAILED, found=found, todo=todo)
    return move_version(
        version=claim.version,
        to=State.REJECTED,
        message=f"{claim.version} rejected: {Finding.SERVER_FAILED}",
        claimed_at=claim.claimed_at,
        values={"report": as_json(Report(rows=[row]))},
    )


def answer_question(*, version: Version, field: str, value: str, actor: User | None = None) -> None:
    """Answer the one question of a version in ``needs_input`` and validate it again.

    Raises ``ShoalError``: CONFLICT when nothing is asked, INVALID_REQUEST for another field or a value that does
    not fit.
    """
    question = (version.report or {}).get("question") or {}
    if version.state != State.NEEDS_INPUT or not question:
        raise ShoalError(Code.CONFLICT, f"{version} is {version.state} and asks nothing.")
    if field != question["field"] or field not in ANSWERABLE:
        raise ShoalError(
            Code.INVALID_REQUEST, f"{version} asks for `{question['field']}`, not for {field[:80]!r}.", param="field"
        )
    choices: Sequence[str] = question.get("choices") or _all_choices(field)
    if value not in choices:
        raise ShoalError(
            Code.INVALID_REQUEST,
            f"{value[:200]!r} does not fit; choose one of: {', '.join(choices[:10])}.",
            param="value",
        )
    with transaction.atomic():
        moved = move_version(
            version=version,
            to=State.VALIDATING,
            message=f"{version} answered: {field} is {value}",
            actor=actor,
            values={ANSWERABLE[field]: value, "attempts": 0},
        )
        if not moved:
            raise ShoalError(Code.CONFLICT, f"{version} was answered by somebody else.")
        start_validation(version_id=version.pk)


def _all_choices(field: str) -> Sequence[str]:
    """What fits a question that lists nothing."""
    if field == "kind":
        return [kind.value for kind in Adapter.Kind]
    return list(BaseModel.objects.values_list("model_id", flat=True)) if field == "base_model" else []


def _request(version: Version, directory: Path) -> ValidationRequest:
    """Uploaded files as local files with neutral names, and all registered manifests."""
    store = artifact_store()
    incoming, work = directory / "uploaded", directory / "work"
    incoming.mkdir()
    work.mkdir()
    files = []
    for number, file in enumerate(version.files.filter(role="uploaded").order_by("path")):
        location = incoming / str(number)
        store.copy_to(file.artifact_id, location)
        files.append(UploadedFile(name=file.path, location=str(location)))
    return ValidationRequest(
        files=files,
        work_dir=str(work),
        manifests=[manifest_of(model) for model in BaseModel.objects.all()],
        wanted_base_model=version.wanted_base_model,
        wanted_kind=version.wanted_kind,
        wanted_choice=version.wanted_choice,
        max_rank=settings.SHOAL.max_rank,
    )


def _limits() -> SandboxLimits:
    return SandboxLimits.for_validation(settings.SHOAL.validation_timeout_s, settings.SHOAL.validation_memory_bytes)


def _store_canonical(path: Path, digest: str) -> None:
    """Keep the canonical artifact. The sandbox's word about its digest is not enough."""
    size_bytes = path.stat().st_size
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != digest:
        raise ValueError(f"canonical artifact is {found}, the report says {digest}")
    store_content(path, digest, size_bytes)


def _verdict(to: State, report: Report) -> str:
    if to is State.NEEDS_INPUT and report.question is not None:
        return f"asks: {report.question.text}"
    codes = [row.code.value for row in report.rows if row.outcome is Outcome.FAIL]
    return f"rejected: {', '.join(codes) or 'no reason given'}"
