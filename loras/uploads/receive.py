"""From a request's files to checked, received files with their relative paths."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from django.utils.datastructures import MultiValueDict

from loras.uploads.handlers import FILE_FIELDS, IncomingFile
from wire.errors import Code, ShoalError

MAX_PATH_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A file on disk: ``path`` as its sender named it, ``location`` where its bytes are now."""

    path: str
    sha256: str
    size_bytes: int
    location: Path


class Fingerprinted(Protocol):
    """What an upload is recognised by."""

    @property
    def path(self) -> str: ...
    @property
    def sha256(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...


def received_files(files: MultiValueDict[str, Any], paths: Sequence[str] = ()) -> list[ReceivedFile]:
    """The uploaded files in the order they came. ``paths`` (the ``paths[]`` field) gives relative paths in the same
    order, since a browser's form drops folders from file names.

    Raises ``ShoalError(UPLOAD_INVALID)`` without files, with a wrong number of paths, or with a path that is empty,
    too long or sent twice.
    """
    found = [file for field in files if field in FILE_FIELDS for file in files.getlist(field)]
    if not found:
        raise ShoalError(
            Code.UPLOAD_INVALID,
            "The upload holds no file.",
            param="file",
            hint="Send the adapter as `file` (.zip, .tar.gz, .safetensors) or its files as `files[]`.",
        )
    if paths and len(paths) != len(found):
        raise ShoalError(Code.UPLOAD_INVALID, f"{len(found)} files came with {len(paths)} paths.", param="paths[]")
    received = [_received(file, paths[at] if paths else file.relative_path) for at, file in enumerate(found)]
    refuse_repeated_paths(received)
    return received


def refuse_repeated_paths(files: Sequence[Fingerprinted]) -> None:
    """Raises ``ShoalError(UPLOAD_INVALID)`` for a path that came twice."""
    seen: set[str] = set()
    for file in files:
        if file.path in seen:
            raise ShoalError(Code.UPLOAD_INVALID, f"The file {file.path!r} came twice.", param="files[]")
        seen.add(file.path)


def fingerprint_of(files: Sequence[Fingerprinted]) -> str:
    """SHA-256 over the sorted (path, sha256, size) of an upload, to recognise the same bytes at once."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.path):
        digest.update(f"{file.path}\0{file.sha256}\0{file.size_bytes}\n".encode(errors="surrogatepass"))
    return digest.hexdigest()


def checked_path(path: str, param: str = "paths[]") -> str:
    """A relative path as a version keeps it. Raises ``ShoalError(UPLOAD_INVALID)``."""
    path = path.replace("\\", "/").removeprefix("./")
    if not path or len(path) > MAX_PATH_CHARACTERS or "\0" in path:
        raise ShoalError(
            Code.UPLOAD_INVALID,
            f"{path[:80]!r} is no usable path: 1 to {MAX_PATH_CHARACTERS} characters without NUL.",
            param=param,
        )
    return path


def _received(file: IncomingFile, path: str) -> ReceivedFile:
    return ReceivedFile(checked_path(path), file.sha256, file.size_bytes, file.path)
