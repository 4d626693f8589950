"""Unfinished uploads as the upload page shows them: one row for each adapter they are meant for."""

from __future__ import annotations

from dataclasses import dataclass, field

from controlplane.accounts.principal import Principal, allows
from loras.models import Upload
from wire.registry import Scope

MOST_ROWS = 200
SHOWN_PATHS = 4


@dataclass(slots=True)
class UnfinishedRow:
    """All unfinished files for one name. ``paths`` names the first few."""

    name: str
    ids: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    sent_bytes: int = 0
    size_bytes: int = 0


def unfinished_uploads(principal: Principal) -> list[UnfinishedRow]:
    """Unfinished uploads of the teams that the principal may push to, the newest name first."""
    teams = [team for team, held in principal.grants.items() if allows(held, Scope.PUSH)]
    rows: dict[str, UnfinishedRow] = {}
    found = Upload.objects.filter(team_id__in=teams, state=Upload.State.OPEN).select_related("team")
    for upload in found.order_by("-created_at", "-id")[:MOST_ROWS]:
        name = f"{upload.team.name}/{upload.adapter}" if upload.adapter else upload.team.name
        row = rows.setdefault(name, UnfinishedRow(name))
        row.ids.append(upload.pk)
        if len(row.paths) < SHOWN_PATHS:
            row.paths.append(upload.path)
        row.sent_bytes += upload.offset_bytes
        row.size_bytes += upload.size_bytes
    return list(rows.values())
