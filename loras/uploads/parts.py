"""Bytes of unfinished uploads: one file each, written by one request at a time, synced before it counts."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from django.conf import settings

from loras.uploads.handlers import disk_error
from loras.uploads.tus import Checksum
from wire.errors import Code, ShoalError

READ_BYTES = 1024 * 1024
# disk and database are behind by at most so much when a process dies in a chunk without an end
SYNC_EVERY_BYTES = 64 * 1024 * 1024

Read = Callable[[int], bytes]


def part_path(upload_id: str) -> Path:
    """Where the bytes of an upload are. ``upload_id`` comes from a row, never from a request."""
    return Path(settings.SHOAL_UPLOADS_DIR) / f"{upload_id}.part"


def make_part(upload_id: str) -> None:
    """An empty file. Raises ``ShoalError(STORAGE_FULL)``."""
    try:
        Path(settings.SHOAL_UPLOADS_DIR).mkdir(parents=True, exist_ok=True)
        part_path(upload_id).open("xb").close()
    except OSError as error:
        raise disk_error(error) from error


def size_of(upload_id: str) -> int | None:
    """Bytes on disk; ``None`` when there is no file."""
    try:
        return part_path(upload_id).stat().st_size
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def locked_part(upload_id: str) -> Iterator[BinaryIO]:
    """The file, for this request alone; the lock ends with its process. Raises ``ShoalError``: UPLOAD_LOCKED while
    another request writes, UPLOAD_EXPIRED when the file is gone."""
    try:
        file = part_path(upload_id).open("r+b", buffering=0)
    except FileNotFoundError:
        raise gone(upload_id) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ShoalError(
                Code.UPLOAD_LOCKED,
                f"Another request is writing to upload {upload_id}.",
                hint="Wait a second, ask HEAD for the offset and go on from there.",
            ) from None
        if os.fstat(file.fileno()).st_nlink == 0:
            # removed between opening and locking
            raise gone(upload_id)
        yield file


def gone(upload_id: str) -> ShoalError:
    """The answer when an upload's bytes are not there any more."""
    return ShoalError(
        Code.UPLOAD_EXPIRED, f"The bytes of upload {upload_id} are gone.", hint="Begin a new upload: POST uploads/."
    )


def append(file: BinaryIO, read: Read, *, at: int, room: int, checksum: Checksum | None) -> int:
    """Write what ``read`` gives behind offset ``at`` until it gives nothing; the new size, synced to disk.

    Without a checksum what has arrived stays when the connection breaks, with one the chunk stays whole or not at all.
    Raises ``ShoalError``: PAYLOAD_TOO_LARGE beyond ``room``, CHECKSUM_MISMATCH, STORAGE_FULL; ``OSError`` when the
    client went away.
    """
    found = checksum.start() if checksum is not None else None
    size, synced, kept = at, at, False
    try:
        file.seek(at)
        while chunk := read(READ_BYTES):
            if size - at + len(chunk) > room:
                raise ShoalError(
                    Code.PAYLOAD_TOO_LARGE,
                    f"The chunk is longer than the {room} bytes that are left of this upload.",
                    param="Upload-Length",
                    detail={"offset": at},
                )
            _write(file, chunk)
            size += len(chunk)
            if found is not None:
                found.update(chunk)
            if size - synced >= SYNC_EVERY_BYTES:
                os.fdatasync(file.fileno())
                synced = size
        if found is not None and checksum is not None and found.digest() != checksum.digest:
            raise ShoalError(
                Code.CHECKSUM_MISMATCH,
                f"The {size - at} bytes at offset {at} do not have the announced {checksum.algorithm}; none was kept.",
                param="Upload-Checksum",
                hint="Send this chunk again.",
                detail={"offset": at},
            )
        kept = True
    except ShoalError as error:
        kept = error.code is Code.STORAGE_FULL and found is None
        raise
    except OSError:
        kept = found is None
        raise
    finally:
        if not kept:
            file.truncate(at)
        os.fsync(file.fileno())
    return size


def sha256_of(file: BinaryIO) -> str:
    """SHA-256 (hex) of the whole file."""
    found = hashlib.sha256()
    file.seek(0)
    while chunk := file.read(READ_BYTES):
        found.update(chunk)
    return found.hexdigest()


def remove_part(upload_id: str) -> None:
    """Delete the bytes; nothing happens when they are gone."""
    part_path(upload_id).unlink(missing_ok=True)


def _write(file: BinaryIO, chunk: bytes) -> None:
    left = memoryview(chunk)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        raise disk_error(error) from error
