"""Verbs of resumable uploads: begin, append, complete, cancel."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from controlplane.accounts.models import Team
from loras.evaluation.rows import MAX_BYTES
from loras.models import Upload, Version
from loras.services.uploads import Received, receive_upload
from loras.storage import MissingContent, artifact_store
from loras.uploads import parts
from loras.uploads.known import is_stored, known_versions
from loras.uploads.quotas import check_bytes, check_counts, check_received, check_uploads_in_progress
from loras.uploads.receive import ReceivedFile, refuse_repeated_paths
from loras.uploads.tus import Checksum
from wire.errors import Code, ShoalError


@dataclass(frozen=True, slots=True)
class Begun:
    """A new upload. ``known`` are versions that hold a file of the announced content; then nothing has to be sent."""

    upload: Upload
    known: list[Version]


def begin_upload(
    *,
    team: Team,
    adapter: str,
    path: str,
    size_bytes: int,
    package_bytes: int = 0,
    sha256: str = "",
    role: str = Upload.Role.ADAPTER,
    metadata: Mapping[str, str] | None = None,
    actor: User | None = None,
) -> Begun:
    """Reserve room for one file. ``package_bytes`` is the size of all files of its version, where the sender knows it.

    Raises ``ShoalError``: QUOTA_EXCEEDED, PAYLOAD_TOO_LARGE, STORAGE_FULL.
    """
    if role == Upload.Role.EVALUATION and size_bytes > MAX_BYTES:
        raise ShoalError(
            Code.PAYLOAD_TOO_LARGE,
            f"An evaluation has at most {MAX_BYTES} bytes, {path} has {size_bytes}.",
            param="role",
        )
    # rows of an evaluation are no content of a version
    stored = role == Upload.Role.ADAPTER and bool(sha256) and is_stored(team, sha256, size_bytes)
    with transaction.atomic():
        # one decision at a time in a team: two uploads must not both take the last free place
        Team.objects.select_for_update().get(pk=team.pk)
        check_uploads_in_progress(team)
        check_bytes(team, 0 if stored else max(size_bytes, package_bytes))
        if adapter:
            check_counts(team, adapter)
        upload = Upload.objects.create(
            team=team,
            created_by=actor,
            adapter=adapter,
            path=path,
            role=role,
            size_bytes=size_bytes,
            offset_bytes=size_bytes if stored else 0,
            stored=stored,
            wanted_sha256=sha256,
            sha256=sha256 if stored else "",
            metadata=dict(metadata or {}),
        )
        if not stored:
            parts.make_part(upload.pk)
    return Begun(upload, known_versions([team.pk], sha256) if stored else [])


def offset_of(upload: Upload) -> int:
    """The offset that the next byte has: bytes on disk, without those of a chunk that was not verified.

    Raises ``ShoalError(UPLOAD_EXPIRED)`` when the upload has ended or its file is gone.
    """
    refuse_expired(upload)
    if upload.stored or upload.state == Upload.State.COMPLETED:
        return upload.size_bytes
    size = parts.size_of(upload.pk)
    if size is None:
        raise parts.gone(upload.pk)
    return size if upload.unverified_from is None else min(size, upload.unverified_from)


def append_chunk(
    *, upload: Upload, offset: int, read: parts.Read, announced: int | None = None, checksum: Checksum | None = None
) -> int:
    """Append one request's body; the new offset. ``announced`` is the body's length where the sender says it.

    Raises ``ShoalError``: OFFSET_MISMATCH with the right offset, UPLOAD_LOCKED, UPLOAD_EXPIRED, PAYLOAD_TOO_LARGE,
    CHECKSUM_MISMATCH, STORAGE_FULL; ``OSError`` when the client went away.
    """
    if upload.stored or upload.state != Upload.State.OPEN:
        found = offset_of(upload)
        if offset != found or announced != 0:
            raise _wrong_offset(upload, offset, found)
        return found
    with parts.locked_part(upload.pk) as file:
        upload.refresh_from_db()
        at = _recover(upload, file)
        if offset != at:
            raise _wrong_offset(upload, offset, at)
        room = upload.size_bytes - at
        if announced is not None and announced > room:
            raise ShoalError(
                Code.PAYLOAD_TOO_LARGE,
                f"The chunk has {announced} bytes, {room} are left of this upload.",
                param="Upload-Length",
                detail={"offset": at},
            )
        if checksum is not None:
            # should this process die, what it has written of this chunk is no part of the upload
            Upload.objects.filter(pk=upload.pk).update(unverified_from=at)
        try:
            size = parts.append(file, read, at=at, room=room, checksum=checksum)
            if size == upload.size_bytes:
                upload.sha256 = parts.sha256_of(file)
        finally:
            _note_offset(upload, os.fstat(file.fileno()).st_size)
    return size


def complete_upload(
    *, uploads: Sequence[Upload], team: Team, name: str, actor: User | None, wishes: Mapping[str, Any]
) -> Received:
    """Make one version of ``team/name`` from finished uploads. May be repeated: the same version comes again.

    ``wishes`` are further arguments of ``receive_upload``. Raises what that raises, and ``ShoalError``:
    OFFSET_MISMATCH for an unfinished upload, CHECKSUM_MISMATCH when a file is not what was announced (it is emptied,
    to be sent again), UPLOAD_LOCKED, UPLOAD_EXPIRED, QUOTA_EXCEEDED.
    """
    done = _version_made_before(uploads)
    if done is not None:
        return Received(done, created=False)
    with contextlib.ExitStack() as stack:
        # always in the same order: two requests that complete the same uploads cannot wait for each other
        for upload in sorted(uploads, key=lambda upload: upload.pk):
            _finish(upload, stack)
        done = _version_made_before(uploads)
        if done is not None:
            return Received(done, created=False)
        files = [upload for upload in uploads if upload.role == Upload.Role.ADAPTER]
        if not files:
            raise ShoalError(Code.UPLOAD_INVALID, "None of the uploads is a file of the adapter.", param="uploads")
        check_received(team, files, without=[upload.pk for upload in uploads])
        received = [stack.enter_context(_taken(upload)) for upload in files]
        refuse_repeated_paths(received)
        evaluation = [upload for upload in uploads if upload.role == Upload.Role.EVALUATION]
        if evaluation:
            wishes = {**wishes, "evaluation": _rows_of(evaluation)}
        result = receive_upload(team=team, name=name, files=received, actor=actor, **wishes)
        ids = [upload.pk for upload in uploads]
        Upload.objects.filter(pk__in=ids).update(
            state=Upload.State.COMPLETED, version=result.version, adapter=name, touched_at=timezone.now()
        )
        for pk in ids:
            parts.remove_part(pk)
    return result


def cancel_upload(*, upload: Upload) -> None:
    """End an upload and delete its bytes. Raises ``ShoalError(UPLOAD_LOCKED)`` while a request writes to it."""
    with contextlib.ExitStack() as stack:
        if parts.size_of(upload.pk) is not None:
            stack.enter_context(parts.locked_part(upload.pk))
        Upload.objects.filter(pk=upload.pk).delete()
        parts.remove_part(upload.pk)


def refuse_expired(upload: Upload) -> None:
    """Raises ``ShoalError(UPLOAD_EXPIRED)`` when the upload was given up."""
    if upload.state == Upload.State.EXPIRED:
        raise ShoalError(
            Code.UPLOAD_EXPIRED,
            f"Upload {upload.pk} of {upload.path} was given up, {upload.touched_at:%Y-%m-%d %H:%M} was its last byte.",
            hint="Begin a new upload: POST uploads/.",
        )


def _recover(upload: Upload, file: BinaryIO) -> int:
    """The offset under the lock; what a dead process left of an unverified chunk is cut off."""
    refuse_expired(upload)
    size = os.fstat(file.fileno()).st_size
    if upload.unverified_from is not None and upload.unverified_from < size:
        file.truncate(upload.unverified_from)
        return upload.unverified_from
    return size


def _note_offset(upload: Upload, size: int) -> None:
    """After the bytes were synced, so that the row is never ahead of the disk."""
    upload.offset_bytes, upload.unverified_from = size, None
    Upload.objects.filter(pk=upload.pk).update(
        offset_bytes=size, unverified_from=None, sha256=upload.sha256, touched_at=timezone.now()
    )


def _finish(upload: Upload, stack: contextlib.ExitStack) -> None:
    """Lock a finished upload for ``stack`` and make sure of its content."""
    if upload.stored:
        return
    upload.refresh_from_db()
    if upload.state == Upload.State.COMPLETED:
        return
    file = stack.enter_context(parts.locked_part(upload.pk))
    upload.refresh_from_db()
    size = _recover(upload, file)
    if size != upload.size_bytes:
        raise ShoalError(
            Code.OFFSET_MISMATCH,
            f"{upload.path} has {size} of {upload.size_bytes} bytes.",
            param="uploads",
            hint=f"Send the rest first: PATCH uploads/{upload.pk}/ at offset {size}.",
            detail={"upload": upload.pk, "offset": size},
        )
    upload.sha256 = upload.sha256 or parts.sha256_of(file)
    if upload.wanted_sha256 and upload.wanted_sha256 != upload.sha256:
        found, upload.sha256 = upload.sha256, ""
        file.truncate(0)
        _note_offset(upload, 0)
        raise ShoalError(
            Code.CHECKSUM_MISMATCH,
            f"{upload.path} arrived with SHA-256 {found}, {upload.wanted_sha256} was announced.",
            param="sha256",
            hint="The file changed while it was sent, or broke on the way. The upload is empty again: send it from 0.",
            detail={"upload": upload.pk, "offset": 0},
        )


@contextlib.contextmanager
def _taken(upload: Upload) -> Iterator[ReceivedFile]:
    """The content under a name that the store may take away: should this process die before the version is made, the
    upload still has its bytes."""
    location = parts.part_path(upload.pk).with_suffix(".take")
    location.unlink(missing_ok=True)
    try:
        if upload.stored:
            artifact_store().copy_to(upload.sha256, location)
        else:
            os.link(parts.part_path(upload.pk), location)
        yield ReceivedFile(upload.path, upload.sha256, upload.size_bytes, Path(location))
    except MissingContent:
        Upload.objects.filter(pk=upload.pk).update(state=Upload.State.EXPIRED)
        raise parts.gone(upload.pk) from None
    finally:
        location.unlink(missing_ok=True)


def _rows_of(uploads: Sequence[Upload]) -> bytes:
    """Rows to measure the version on; no more is read than what is sure to be refused."""
    if len(uploads) > 1:
        raise ShoalError(
            Code.UPLOAD_INVALID, f"{len(uploads)} uploads are evaluations; a version takes one.", param="uploads"
        )
    try:
        with parts.part_path(uploads[0].pk).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise parts.gone(uploads[0].pk) from None


def _version_made_before(uploads: Sequence[Upload]) -> Version | None:
    """The version that exactly these uploads have become. Raises ``ShoalError(CONFLICT)`` when only some have."""
    rows = {row.pk: row for row in Upload.objects.filter(pk__in=[upload.pk for upload in uploads])}
    made = {rows[upload.pk].version_id for upload in uploads if rows[upload.pk].state == Upload.State.COMPLETED}
    if not made:
        return None
    version = Version.objects.filter(pk__in=[pk for pk in made if pk]).select_related("adapter__team").first()
    if len(made) > 1 or version is None or any(row.state != Upload.State.COMPLETED for row in rows.values()):
        raise ShoalError(
            Code.CONFLICT,
            "Some of these uploads have become another version already.",
            param="uploads",
            hint="Begin a new upload: known content need not be sent again.",
        )
    return version


def _wrong_offset(upload: Upload, offset: int, found: int) -> ShoalError:
    return ShoalError(
        Code.OFFSET_MISMATCH,
        f"{upload.path} goes on at offset {found} of {upload.size_bytes}, this chunk says {offset}.",
        param="Upload-Offset",
        hint="Go on from there.",
        detail={"offset": found},
    )
