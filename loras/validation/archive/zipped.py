"""Streams a zip archive. The central directory is bounded before it is read; sizes in it are never believed."""

from __future__ import annotations

import errno
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from loras.validation.archive.paths import unsafe
from loras.validation.archive.unpacking import CHUNK_BYTES, Unpacked, corrupt, too_large, unsupported
from loras.validation.findings import clipped

_ENCRYPTED = 0x1
_DIRECTORY_BYTES_PER_ENTRY = 600
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class _BoundedReader:
    """A file whose single reads are bounded, so that a forged directory size cannot fill memory."""

    def __init__(self, file: IO[bytes], limit_bytes: int) -> None:
        self._file = file
        self._limit_bytes = limit_bytes
        self.seek = file.seek
        self.tell = file.tell

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size > self._limit_bytes:
            raise too_large(f"its directory claims {size} bytes")
        return self._file.read(self._limit_bytes if size < 0 else size)


def unpack_zip(path: Path, into: Unpacked) -> None:
    """Write the archive's files below ``into.folder``. Raises ``Refused`` for anything unsafe or unreadable."""
    limit_bytes = max(CHUNK_BYTES, into.limits.entries * _DIRECTORY_BYTES_PER_ENTRY)
    try:
        with path.open("rb") as file, zipfile.ZipFile(bounded(file, limit_bytes)) as archive:
            _unpack(archive, into)
    except (zipfile.BadZipFile, zlib.error, EOFError, struct.error, OverflowError, ValueError) as error:
        raise corrupt(clipped(str(error)) or type(error).__name__) from error
    except OSError as error:
        # a forged offset makes zipfile seek before the file; a full disk is no fault of the archive
        if error.errno != errno.EINVAL:
            raise
        raise corrupt("an entry lies outside of the file") from error
    except (NotImplementedError, RuntimeError) as error:
        raise unsupported(f"The zip needs what is not read here: {clipped(str(error))}") from error


def _unpack(archive: zipfile.ZipFile, into: Unpacked) -> None:
    members = archive.infolist()
    if len(members) > into.limits.entries:
        raise too_large(f"{len(members)} entries (limit {into.limits.entries})")
    # every entry is checked before the first byte is written: one bad entry refuses the whole archive
    named = [(into.enter(member.orig_filename), member) for member in members]
    for name, member in named:
        _check_member(name, member)
    for name, member in named:
        if not member.is_dir():
            into.store(name, _chunks(archive, member))


def bounded(file: IO[bytes], limit_bytes: int) -> IO[bytes]:
    """``file`` for ``zipfile``, with bounded reads."""
    # zipfile needs only read, seek, tell and seekable of a file it reads
    return cast(IO[bytes], _BoundedReader(file, limit_bytes))


def _check_member(name: str, member: zipfile.ZipInfo) -> None:
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind == stat.S_IFLNK:
        raise unsafe(f"entry {clipped(name)!r} is a symbolic link")
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise unsafe(f"entry {clipped(name)!r} is no plain file (type {kind:o})")
    if member.flag_bits & _ENCRYPTED:
        raise unsupported(f"Entry {clipped(name)!r} is encrypted")
    if member.compress_type not in _COMPRESSIONS:
        raise unsupported(f"Entry {clipped(name)!r} uses zip compression method {member.compress_type}")


def _chunks(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    with archive.open(member) as source:
        while chunk := source.read(CHUNK_BYTES):
            yield chunk
