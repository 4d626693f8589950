"""What requests of resumable uploads say: whose upload, which adapter, what for, and the bytes in their body."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from rest_framework.request import Request

from controlplane.accounts.models import Team
from controlplane.accounts.principal import Principal, allows
from loras.api.serializers import WishesForm
from loras.models import Upload
from loras.services.uploads import check_base_model, check_name
from loras.uploads import tus
from loras.uploads.known import SHA256
from loras.uploads.receive import checked_path
from wire.errors import Code, ShoalError
from wire.names import FullName, parse_full_name
from wire.registry import Scope

# a refusal is sure to be read when the rest of a chunk was; a longer body may see a closed connection instead
DRAINED_BYTES = 16 * 1024 * 1024
WISHES = ("base_model", "kind", "promote", "message", "choice")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a new upload says of itself, checked."""

    team: Team
    adapter: str
    path: str
    sha256: str
    role: str
    package_bytes: int
    metadata: dict[str, str]


def read_wanted(principal: Principal, header_value: str | None, length: int) -> Wanted:
    """The metadata of a new upload. Whatever the completion would refuse is refused here, before the bytes travel."""
    metadata = tus.read_metadata(header_value)
    if length > settings.SHOAL.upload_max_bytes:
        raise ShoalError(
            Code.PAYLOAD_TOO_LARGE,
            f"The file has {length} bytes; at most {settings.SHOAL.upload_max_bytes} are accepted.",
            param="Upload-Length",
        )
    name = metadata.get("name", "")
    # some clients put the file's own name there
    full_name = parse_full_name(name) if "/" in name else None
    team = principal.team(full_name.team, Scope.PUSH) if full_name else _only_team(principal)
    if full_name is not None:
        check_name(team, full_name.adapter)
    sha256 = metadata.get("sha256", "").lower()
    if sha256 and not SHA256.match(sha256):
        raise ShoalError(Code.INVALID_REQUEST, f"{sha256[:80]!r} is no SHA-256 in hex.", param="sha256")
    role = metadata.get("role", Upload.Role.ADAPTER.value)
    if role not in Upload.Role.values:
        raise ShoalError(Code.INVALID_REQUEST, f"The role is {role[:40]!r}, not adapter or evaluation.", param="role")
    package = metadata.get("package_bytes")
    read_wishes(metadata)
    return Wanted(
        team=team,
        adapter=full_name.adapter if full_name else "",
        path=checked_path(metadata.get("relativePath") or metadata.get("filename") or "upload", "filename"),
        sha256=sha256,
        role=role,
        package_bytes=tus.read_count("package_bytes", package) if package else 0,
        metadata=metadata,
    )


def read_wishes(said: dict[str, Any]) -> dict[str, Any]:
    """Further arguments of ``receive_upload``, from metadata or a body. Raises ``ValidationError``, ``ShoalError``."""
    names = set(WishesForm().fields)
    form = WishesForm(data={name: said[name] for name in names if name in said})
    form.is_valid(raise_exception=True)
    wishes = dict(form.validated_data)
    check_base_model(wishes.get("base_model", ""))
    return wishes


def get_upload(principal: Principal, upload_id: str) -> Upload:
    """An upload of a team that the principal may push to. Raises ``ShoalError(NOT_FOUND)``."""
    rows = Upload.objects.filter(pk=upload_id[:64], team_id__in=pushable(principal)) if "\0" not in upload_id else None
    upload = rows.select_related("team").first() if rows is not None else None
    if upload is None:
        raise ShoalError(
            Code.NOT_FOUND, f"There is no upload {upload_id[:64]!r} for you.", hint="GET uploads/ lists them."
        )
    return upload


def pushable(principal: Principal) -> list[int]:
    """Ids of the teams that the principal may upload to."""
    return [team for team, held in principal.grants.items() if allows(held, Scope.PUSH)]


def _only_team(principal: Principal) -> Team:
    teams = list(Team.objects.filter(pk__in=pushable(principal))[:2])
    if len(teams) != 1:
        raise ShoalError(
            Code.INVALID_REQUEST,
            "Say for which adapter the upload is.",
            param="name",
            hint="Upload-Metadata: name base64(team/adapter).",
        )
    return teams[0]


def name_of(said: str, uploads: list[Upload]) -> FullName:
    """The adapter that a completion names, or its uploads do. Raises ``ShoalError(INVALID_REQUEST)``."""
    named = said or next((f"{upload.team.name}/{upload.adapter}" for upload in uploads if upload.adapter), "")
    if not named:
        raise ShoalError(
            Code.INVALID_REQUEST,
            "Say which adapter this is a version of.",
            param="name",
            hint='{"name": "team/adapter"}',
        )
    return parse_full_name(named)


def said_by(uploads: list[Upload]) -> dict[str, str]:
    """What the uploads' metadata say for the completion, the first one's before the others'."""
    found: dict[str, str] = {}
    for upload in reversed(uploads):
        found |= {name: value for name, value in upload.metadata.items() if name in WISHES}
    return found


def read_length(request: Request) -> int:
    """The file's length. Raises ``ShoalError``."""
    return tus.read_count("Upload-Length", request.headers.get("Upload-Length"))


def carries_bytes(request: Request) -> bool:
    """Whether the body is a chunk."""
    return request.headers.get("Content-Type", "").lower().startswith(tus.CHUNK_TYPE)


def announced_bytes(request: Request) -> int | None:
    """The body's length, when it is told."""
    length = request.headers.get("Content-Length", "")
    return int(length) if length.isdigit() else None


def body_reader(request: Request) -> Callable[[int], bytes]:
    """Reads the body while it travels; framework parsers never see it."""
    read: Callable[[int], bytes] = request._request.read
    return read


def drain_body(request: Request) -> None:
    """Read what is left of a bounded body."""
    announced = announced_bytes(request)
    if not carries_bytes(request) or announced is None or announced > DRAINED_BYTES:
        return
    with contextlib.suppress(OSError, ValueError):
        while request._request.read(1024 * 1024):
            pass
