"""Quotas of teams, answered before the bytes travel: the limit, the use, and what to delete."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from django.db.models import Q, QuerySet, Sum

from controlplane.accounts.models import Team
from controlplane.accounts.quotas import Limits, limits_of
from loras.models import Adapter, Artifact, Upload, Version
from loras.states import State
from loras.uploads.receive import Fingerprinted
from wire.errors import Code, ShoalError

NAMED = 3
# a version that was refused or taken out of service takes no number away from the next one
COUNTED_STATES = [State.RECEIVING, State.VALIDATING, State.NEEDS_INPUT, State.READY]


@dataclass(frozen=True, slots=True)
class Use:
    """What a team has now. ``reserved_bytes`` are announced by uploads that are on their way."""

    stored_bytes: int
    reserved_bytes: int
    adapters: int
    uploads_in_progress: int


def use_of(team: Team, *, without: Collection[str] = ()) -> Use:
    """What ``team`` uses; uploads whose ids are in ``without`` do not count."""
    kept = _kept_by(team)
    opened = Upload.objects.filter(team=team, state=Upload.State.OPEN).exclude(pk__in=without)
    return Use(
        stored_bytes=kept.aggregate(bytes=Sum("size_bytes"))["bytes"] or 0,
        reserved_bytes=opened.filter(stored=False).aggregate(bytes=Sum("size_bytes"))["bytes"] or 0,
        adapters=Adapter.objects.filter(team=team).count(),
        uploads_in_progress=opened.count(),
    )


def check_bytes(team: Team, wanted_bytes: int, *, without: Collection[str] = ()) -> None:
    """Refuse an upload of ``wanted_bytes`` that ``team`` has no room for. Raises ``ShoalError(QUOTA_EXCEEDED)``."""
    limits, use = limits_of(team), use_of(team, without=without)
    if wanted_bytes > limits.upload_bytes:
        raise _exceeded(
            "upload_bytes", limits.upload_bytes, wanted_bytes,
            f"This upload has {size_words(wanted_bytes)}; team {team.name} may send {size_words(limits.upload_bytes)}"
            " in one upload.",
            "Leave out checkpoints and optimizer states, or ask an administrator of this site for a higher limit.",
        )  # fmt: skip
    used = use.stored_bytes + use.reserved_bytes
    if wanted_bytes and used + wanted_bytes > limits.stored_bytes:
        on_the_way = f" ({size_words(use.reserved_bytes)} of it for unfinished uploads)" if use.reserved_bytes else ""
        raise _exceeded(
            "stored_bytes", limits.stored_bytes, used,
            f"Team {team.name} uses {size_words(used)} of {size_words(limits.stored_bytes)}{on_the_way}; this upload of"
            f" {size_words(wanted_bytes)} does not fit.",
            _what_to_delete(team),
        )  # fmt: skip


def check_received(team: Team, files: Sequence[Fingerprinted], *, without: Collection[str] = ()) -> None:
    """The exact judgement once all files are here; content that the team keeps already takes no room again. Raises
    ``ShoalError(QUOTA_EXCEEDED)``."""
    sizes = {file.sha256: file.size_bytes for file in files}
    for sha256 in _kept_by(team).filter(sha256__in=list(sizes)).values_list("sha256", flat=True):
        del sizes[sha256]
    check_bytes(team, sum(sizes.values()), without=without)


def _kept_by(team: Team) -> QuerySet[Artifact]:
    """Each content once. What was deleted does not count, although it can still be restored for a week: deleting must
    make room at once."""
    return Artifact.objects.filter(
        uses__version__adapter__team=team,
        uses__version__deleted_at=None,
        uses__version__adapter__deleted_at=None,
    ).distinct()


def check_uploads_in_progress(team: Team) -> None:
    """Refuse one more unfinished upload than ``team`` may have. Raises ``ShoalError(QUOTA_EXCEEDED)``."""
    limits, opened = limits_of(team), Upload.objects.filter(team=team, state=Upload.State.OPEN)
    count = opened.count()
    if count >= limits.uploads_in_progress:
        oldest = opened.order_by("touched_at")[:NAMED]
        raise _exceeded(
            "uploads_in_progress", limits.uploads_in_progress, count,
            f"Team {team.name} has {count} unfinished uploads; it may have {limits.uploads_in_progress}.",
            "Complete or delete one: " + ", ".join(f"DELETE uploads/{upload.id}/ ({upload.path})" for upload in oldest),
        )  # fmt: skip


def check_counts(team: Team, name: str) -> None:
    """Refuse a version of ``team/name`` that would be one adapter, or one version, too many.

    Inside a transaction the team's row is locked, so that two uploads cannot both be the last one. Raises
    ``ShoalError(QUOTA_EXCEEDED)``.
    """
    limits = limits_of(team)
    adapter = Adapter.objects.filter(team=team, name=name).first()
    if adapter is None:
        count = Adapter.objects.filter(team=team).count()
        if count >= limits.adapters:
            raise _exceeded(
                "adapters", limits.adapters, count,
                f"Team {team.name} has {count} adapters; it may have {limits.adapters}.",
                f"Delete one that nobody needs: {_unused_adapters(team)}.",
            )  # fmt: skip
        return
    versions = Version.objects.filter(adapter=adapter, state__in=COUNTED_STATES, duplicate_of=None, deleted_at=None)
    count = versions.count()
    if count >= limits.versions_per_adapter:
        aliased = {int(number) for split in adapter.aliases.values_list("split", flat=True) for number in split}
        idle = versions.exclude(number__in=aliased).order_by("number").values_list("number", flat=True)[:NAMED]
        named = ", ".join(f"DELETE adapters/{team.name}/{name}/versions/{number}/" for number in idle)
        raise _exceeded(
            "versions_per_adapter", limits.versions_per_adapter, count,
            f"{team.name}/{name} has {count} versions; an adapter of this team may have {limits.versions_per_adapter}.",
            f"Retire the oldest that no alias points at: {named or 'every version has an alias'}.",
        )  # fmt: skip


def limits_and_use(team: Team) -> tuple[Limits, Use]:
    """Both, for pages and clients."""
    return limits_of(team), use_of(team)


def size_words(size_bytes: int) -> str:
    """Bytes as a person reads them; exact below a thousand."""
    for unit, width in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= width:
            return f"{size_bytes / width:.2f} {unit}"
    return f"{size_bytes} bytes"


def _exceeded(limit: str, allowed: int, used: int, message: str, hint: str) -> ShoalError:
    detail = {"quota": {"name": limit, "limit": allowed, "used": used}}
    return ShoalError(Code.QUOTA_EXCEEDED, message, param=limit, hint=hint, detail=detail)


def _what_to_delete(team: Team) -> str:
    """The adapters that take most, so that nobody has to look for them."""
    rows = (
        Adapter.objects.filter(team=team)
        .annotate(kept=Sum("versions__size_bytes", filter=Q(versions__deleted_at=None)))
        .exclude(kept=None)
        .order_by("-kept")[:NAMED]
    )
    largest = ", ".join(f"{team.name}/{row.name} ({size_words(row.kept)})" for row in rows)
    unfinished = Upload.objects.filter(team=team, state=Upload.State.OPEN, stored=False).count()
    also = f" There are {unfinished} unfinished uploads: GET uploads/ lists them." if unfinished else ""
    return (f"Delete versions or adapters; the largest: {largest}." if largest else "Nothing is stored yet.") + also


def _unused_adapters(team: Team) -> str:
    rows = Adapter.objects.filter(team=team).order_by("updated_at").values_list("name", flat=True)[:NAMED]
    return ", ".join(f"{team.name}/{name}" for name in rows)
