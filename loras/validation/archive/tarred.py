"""Streams a tar or tar.gz archive header by header, so that no record of it is held in memory unbounded."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from loras.validation.archive.paths import unsafe
from loras.validation.archive.unpacking import CHUNK_BYTES, Unpacked, corrupt, too_large
from loras.validation.findings import clipped

_BLOCK = tarfile.BLOCKSIZE
_EXTENSION_BYTES = 1 << 20
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_EXTENSIONS = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE)
_GNU_NAMES = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_KINDS = {
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a character device",
    tarfile.BLKTYPE: "a block device",
    tarfile.FIFOTYPE: "a named pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


def unpack_tar(path: Path, into: Unpacked, *, compressed: bool) -> None:
    """Write the archive's files below ``into.folder``. Raises ``Refused`` for anything unsafe or unreadable."""
    try:
        with path.open("rb") as file:
            if not compressed:
                _unpack(file, into)
                return
            with gzip.GzipFile(fileobj=file, mode="rb") as stream:
                _unpack(cast(IO[bytes], stream), into)
    except (gzip.BadGzipFile, zlib.error, EOFError, tarfile.TarError, OverflowError, ValueError) as error:
        raise corrupt(clipped(str(error)) or type(error).__name__) from error


def _unpack(stream: IO[bytes], into: Unpacked) -> None:
    overrides: dict[str, str] = {}
    while True:
        header = _exactly(stream, _BLOCK)
        if not header.strip(b"\0"):
            _drain(stream, into)
            return
        entry = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        if entry.size < 0:
            raise corrupt(f"entry {clipped(entry.name)!r} has the size {entry.size}")
        if entry.type in _GNU_NAMES:
            into.count_entry()
            name = _extension(stream, entry, into).rstrip(b"\0").decode("utf-8", "surrogateescape")
            overrides["path" if entry.type == tarfile.GNUTYPE_LONGNAME else "linkpath"] = name
            continue
        if entry.type in _EXTENSIONS:
            into.count_entry()
            fields = _pax_fields(_extension(stream, entry, into))
            if entry.type != tarfile.XGLTYPE:
                overrides.update(fields)
            elif "path" in fields or "size" in fields:
                raise unsafe("a global header renames every entry")
            continue
        _store(stream, entry, overrides, into)
        overrides = {}


def _drain(stream: IO[bytes], into: Unpacked) -> None:
    """Read what follows the closing block, so that gzip's checksum is verified."""
    while chunk := stream.read(CHUNK_BYTES):
        into.count_bytes(len(chunk))


def _store(stream: IO[bytes], entry: tarfile.TarInfo, overrides: dict[str, str], into: Unpacked) -> None:
    raw = overrides.get("path", entry.name)
    if entry.type == tarfile.DIRTYPE and raw.strip("/") in ("", "."):
        into.count_entry()
        return
    name = into.enter(raw)
    if any(key.startswith("GNU.sparse") for key in overrides):
        raise unsafe(f"entry {clipped(name)!r} is a sparse file")
    if entry.type != tarfile.DIRTYPE and entry.type not in _PLAIN:
        kind = _KINDS.get(entry.type, f"of the unknown type {entry.type!r}")
        raise unsafe(f"entry {clipped(name)!r} is {kind}")
    size = int(overrides.get("size", entry.size))
    if size < 0:
        raise corrupt(f"entry {clipped(name)!r} has the size {size}")
    if entry.type == tarfile.DIRTYPE:
        return
    into.store(name, _data(stream, size))


def _data(stream: IO[bytes], size: int) -> Iterator[bytes]:
    left = size
    while left:
        chunk = stream.read(min(CHUNK_BYTES, left))
        if not chunk:
            raise EOFError(f"the archive ends {left} bytes before the end of an entry")
        left -= len(chunk)
        yield chunk
    if size % _BLOCK:
        _exactly(stream, _BLOCK - size % _BLOCK)


def _extension(stream: IO[bytes], entry: tarfile.TarInfo, into: Unpacked) -> bytes:
    if entry.size > _EXTENSION_BYTES:
        raise too_large(f"an extended header claims {entry.size} bytes")
    into.count_bytes(entry.size)
    return b"".join(_data(stream, entry.size))


def _pax_fields(body: bytes) -> dict[str, str]:
    """Records ``<length> <key>=<value>\\n`` of a pax header (POSIX.1-2001)."""
    fields: dict[str, str] = {}
    while body.strip(b"\0"):
        length_text, space, _ = body.partition(b" ")
        if not space or not length_text.isdigit() or len(length_text) > 8:
            raise corrupt("an extended header has no record length")
        length = int(length_text)
        record = body[len(length_text) + 1 : length - 1]
        if length < len(length_text) + 3 or length > len(body) or b"=" not in record:
            raise corrupt("an extended header has a record of the wrong length")
        key, _, value = record.partition(b"=")
        fields[key.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        body = body[length:]
    return fields


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise EOFError("the archive ends without its closing blocks" if not data else "the archive is cut")
    return data


def read_is_tar(path: Path) -> bool:
    """Whether a gzip file holds a tar archive (judged by its first block's checksum)."""
    try:
        with gzip.open(path, "rb") as stream:
            block = stream.read(_BLOCK)
            if block.strip(b"\0"):
                tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (gzip.BadGzipFile, zlib.error, EOFError, tarfile.TarError, OSError):
        return False
    return True
