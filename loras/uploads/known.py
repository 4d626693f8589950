"""Content that a team has uploaded before: it need not travel again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.accounts.models import Team
from loras.models import Version, VersionFile
from loras.services.uploads import SAME_BYTES_COUNT_IN
from loras.storage import artifact_store, is_intact
from loras.uploads.receive import Fingerprinted, fingerprint_of

SHA256 = re.compile(r"[0-9a-f]{64}\Z")
SHOWN = 5


@dataclass(frozen=True, slots=True)
class AnnouncedFile:
    """A file as its sender describes it before sending."""

    path: str
    sha256: str
    size_bytes: int


def known_versions(team_ids: Sequence[int], sha256: str) -> list[Version]:
    """Versions of these teams that were uploaded with a file of this content, newest first. Other teams' content does
    not exist here: who knows a hash has not thereby the file."""
    rows = Version.objects.filter(
        adapter__team_id__in=team_ids,
        files__artifact_id=sha256,
        files__role=VersionFile.Role.UPLOADED,
        state__in=SAME_BYTES_COUNT_IN,
        deleted_at=None,
        adapter__deleted_at=None,
    )
    return list(rows.select_related("adapter__team").distinct().order_by("-created_at", "-id")[:SHOWN])


def same_upload(team_ids: Sequence[int], files: Sequence[Fingerprinted], *, name: str = "") -> list[Version]:
    """Versions of these teams that consist of exactly these files; those of the adapter ``name`` (``team/adapter``)
    first, then the oldest."""
    rows = Version.objects.filter(
        adapter__team_id__in=team_ids,
        adapter__deleted_at=None,
        upload_fingerprint=fingerprint_of(files),
        state__in=SAME_BYTES_COUNT_IN,
        deleted_at=None,
    )
    found = list(rows.select_related("adapter__team").order_by("number", "id")[:50])
    return sorted(found, key=lambda version: version.adapter.full_name != name)[:SHOWN]


def is_stored(team: Team, sha256: str, size_bytes: int) -> bool:
    """Whether an upload of ``team`` needs to send nothing, since this content is one of its own files and whole."""
    uses = VersionFile.objects.filter(
        version__adapter__team=team, artifact_id=sha256, artifact__size_bytes=size_bytes, role=VersionFile.Role.UPLOADED
    )
    return uses.exists() and is_intact(artifact_store(), sha256)
