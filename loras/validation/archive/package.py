"""From uploaded files to a flat map of names to files on disk, whatever they were packed in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from loras.validation.archive.paths import CHECK, SafeNames
from loras.validation.archive.tarred import read_is_tar, unpack_tar
from loras.validation.archive.unpacking import ARCHIVE_SUFFIXES, Unpacked, archive_kind, corrupt, unsupported
from loras.validation.archive.zipped import unpack_zip
from loras.validation.findings import Refused, clipped, failed, passed
from wire.reports import Finding, Row
from wire.validation import ArchiveLimits, ValidationRequest

_START_BYTES = 512


@dataclass(frozen=True, slots=True)
class Package:
    """Every file of the upload under its safe relative name. ``archive`` names what they were unpacked from."""

    files: dict[str, Path]
    size_bytes: int
    archive: str = ""
    kind: str = ""


def open_package(request: ValidationRequest) -> Package:
    """The upload's files, unpacked when it is one archive. Raises ``Refused`` (ARCHIVE_*, FILE_MISSING)."""
    if not request.files:
        raise Refused(
            failed(
                "Files are there",
                Finding.FILE_MISSING,
                "The upload has no file.",
                "Upload adapter_config.json and adapter_model.safetensors, or a folder or archive with them.",
            )
        )
    names = SafeNames(request.archive)
    files = {names.accept(file.name): Path(file.location) for file in request.files}
    if len(files) == 1:
        (name, path), *_ = files.items()
        kind = archive_kind(_start(path))
        if kind is not None and not name.lower().endswith((".bin", ".pt", ".pth", ".ckpt")):
            return _unpack(name, path, kind, Path(request.work_dir) / "unpacked", request.archive)
        if kind is None and name.lower().endswith(ARCHIVE_SUFFIXES):
            start = clipped(repr(_start(path)[:24])[1:])
            raise corrupt(f"{clipped(name)} has {path.stat().st_size:,} bytes and begins with {start}, as none does")
    return Package(files, sum(path.stat().st_size for path in files.values()))


def check_archive(package: Package) -> list[Row]:
    """What was unpacked, in numbers."""
    count = f"{len(package.files)} files, {package.size_bytes:,} bytes"
    found = f"{package.archive} ({package.kind}): {count}" if package.archive else f"{count}, not packed"
    return [passed(CHECK, found)]


def _unpack(name: str, path: Path, kind: str, folder: Path, limits: ArchiveLimits) -> Package:
    unpacked = Unpacked(folder, path.stat().st_size, limits)
    if kind == "zip":
        unpack_zip(path, unpacked)
    elif kind == "tar" or (kind == "gzip" and read_is_tar(path)):
        unpack_tar(path, unpacked, compressed=kind == "gzip")
    else:
        what = "gzip, but no tar archive" if kind == "gzip" else f"packed as {kind}"
        raise unsupported(f"{clipped(name)} is {what}")
    return Package(unpacked.files, unpacked.out_bytes, clipped(name), kind)


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_START_BYTES)
