"""The limits that hold for a team: its own where an administrator set one, else the site's defaults."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings

from controlplane.accounts.models import Team, TeamQuota


@dataclass(frozen=True, slots=True)
class Limits:
    """``stored_bytes`` counts what versions and unfinished uploads keep, ``upload_bytes`` all files of one upload."""

    stored_bytes: int
    adapters: int
    versions_per_adapter: int
    uploads_in_progress: int
    upload_bytes: int


def limits_of(team: Team) -> Limits:
    """The limits of ``team``. No team may send more at once than the server takes from anybody."""
    own = TeamQuota.objects.filter(team=team).first() or TeamQuota(team=team)
    site = settings.SHOAL
    return Limits(
        stored_bytes=_first(own.stored_bytes, site.quota_stored_bytes),
        adapters=_first(own.adapters, site.quota_adapters),
        versions_per_adapter=_first(own.versions_per_adapter, site.quota_versions),
        uploads_in_progress=_first(own.uploads_in_progress, site.quota_uploads),
        upload_bytes=min(_first(own.upload_bytes, site.upload_max_bytes), site.upload_max_bytes),
    )


def _first(own: int | None, default: int) -> int:
    return default if own is None else own
