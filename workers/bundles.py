"""A fine-tune's canonical file opened as an ordinary model folder (see ``wire.canonical``)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from wire.canonical import PREFIX_FILE
from wire.errors import Code, ShoalError

_MAX_HEADER_BYTES = 100 * 1024 * 1024
"""The bound of the safetensors format itself."""
_MAX_FILES = 256
_MAX_FILES_BYTES = 256 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
_WEIGHTS = "model.safetensors"
_SCRATCH_PREFIX = "shoal-model-"


@contextlib.contextmanager
def scratch_folder(root: Path | None = None) -> Iterator[Path]:
    """A folder for one load, gone afterwards; those that a killed worker left behind go first."""
    parent = root if root is not None else Path(tempfile.gettempdir())
    for left in parent.glob(f"{_SCRATCH_PREFIX}*"):
        owner = left.name.removeprefix(_SCRATCH_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists() and left.stat().st_uid == os.getuid():
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{_SCRATCH_PREFIX}{os.getpid()}-", dir=parent) as folder:
        yield Path(folder)


def unpack_bundle(artifact: Path, folder: Path, *, digest: str) -> Path:
    """Write the small files of ``artifact`` into ``folder`` and link it there as ``model.safetensors``; the folder.

    Raises ``ShoalError``: ARTIFACT_UNAVAILABLE when the file cannot be read, ARTIFACT_CORRUPT when its SHA-256 is not
    ``digest``, ADAPTER_UNLOADABLE when it is no fine-tune, OUT_OF_MEMORY when ``folder`` has no room.
    """
    check_artifact(artifact, digest=digest)
    header, start = _read_header(artifact)
    files = {name.removeprefix(PREFIX_FILE): entry for name, entry in header.items() if name.startswith(PREFIX_FILE)}
    ranges = {name: _range(artifact, name, entry) for name, entry in files.items()}
    size_bytes = sum(stop - begin for begin, stop in ranges.values())
    if not files or len(files) > _MAX_FILES or size_bytes > _MAX_FILES_BYTES:
        raise _unloadable(
            artifact,
            f"it has {len(files)} small files of {size_bytes} bytes; expected are 1 to {_MAX_FILES} files "
            f"of at most {_MAX_FILES_BYTES} bytes",
        )
    try:
        with artifact.open("rb") as source:
            for name, (begin, stop) in ranges.items():
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                source.seek(start + begin)
                target.write_bytes(source.read(stop - begin))
        (folder / _WEIGHTS).symlink_to(artifact.resolve())
    except OSError as error:
        raise ShoalError(
            Code.OUT_OF_MEMORY,
            f"The {len(files)} small files of {artifact.name} ({size_bytes} bytes) cannot be written to {folder}: "
            f"{error.strerror}.",
            hint="Make room where TMPDIR points to on the worker's machine.",
        ) from error
    return folder


def check_artifact(artifact: Path, *, digest: str) -> None:
    """Raises ``ShoalError``: ARTIFACT_UNAVAILABLE when the file cannot be read, ARTIFACT_CORRUPT when its SHA-256 is
    another."""
    found = hashlib.sha256()
    try:
        with artifact.open("rb") as handle:
            while chunk := handle.read(_CHUNK_BYTES):
                found.update(chunk)
    except OSError as error:
        raise ShoalError(
            Code.ARTIFACT_UNAVAILABLE, f"The file {artifact.name} cannot be read: {error.strerror}."
        ) from error
    if found.hexdigest() != digest:
        raise _corrupt(artifact, f"its SHA-256 is {found.hexdigest()}, expected {digest}")


def _read_header(artifact: Path) -> tuple[dict[str, Any], int]:
    """The safetensors header and the offset of the first tensor's data."""
    with artifact.open("rb") as handle:
        length = int.from_bytes(handle.read(8), "little")
        if length > min(_MAX_HEADER_BYTES, artifact.stat().st_size - 8):
            raise _corrupt(artifact, f"its header of {length} bytes does not fit")
        try:
            header = json.loads(handle.read(length))
        except ValueError as error:
            raise _corrupt(artifact, f"its header is no JSON ({error})") from error
    if not isinstance(header, dict):
        raise _corrupt(artifact, "its header is no map")
    return header, 8 + length


def _range(artifact: Path, name: str, entry: Any) -> tuple[int, int]:
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\0" in name or name == _WEIGHTS:
        raise _unloadable(artifact, f"{name!r} is no name for a file beside the weights")
    try:
        begin, stop = entry["data_offsets"]
        if entry["dtype"] != "U8" or not 0 <= begin <= stop:
            raise _corrupt(artifact, f"the tensor of {name!r} is no run of bytes")
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(artifact, f"the tensor of {name!r} has no place ({error!r})") from error
    return begin, stop


def _corrupt(artifact: Path, reason: str) -> ShoalError:
    return ShoalError(
        Code.ARTIFACT_CORRUPT,
        f"The file {artifact.name} is damaged: {reason}.",
        hint="It is fetched again on the next request.",
    )


def _unloadable(artifact: Path, reason: str) -> ShoalError:
    return ShoalError(
        Code.ADAPTER_UNLOADABLE,
        f"The fine-tune {artifact.name} cannot be loaded: {reason}.",
        hint="Push it again; if it is refused again, report it with this digest.",
    )
