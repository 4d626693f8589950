"""Where unpacked bytes go: numbered files below the work directory, counted against the archive's limits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from loras.validation.archive.paths import CHECK, SafeNames
from loras.validation.findings import Refused, clipped, failed
from wire.reports import Finding
from wire.validation import ArchiveLimits

CHUNK_BYTES = 1 << 20
# weights saved by torch are zip files themselves; they are never opened
_PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".npz", ".keras", ".nemo", ".distcp")
ARCHIVE_SUFFIXES = (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".zst", ".rar", ".7z", ".lz4")


@dataclass(slots=True)
class Unpacked:
    """Counts every entry and byte that comes out of one archive of ``packed_bytes`` and keeps the files."""

    folder: Path
    packed_bytes: int
    limits: ArchiveLimits
    files: dict[str, Path] = field(default_factory=dict)
    entries: int = 0
    out_bytes: int = 0
    names: SafeNames = field(init=False)

    def __post_init__(self) -> None:
        self.names = SafeNames(self.limits)
        self.folder.mkdir(exist_ok=True)

    def enter(self, raw_name: str) -> str:
        """Count one entry and check its name."""
        self.count_entry()
        return self.names.accept(raw_name)

    def count_entry(self) -> None:
        """Count one entry; raises ``Refused`` above the limit."""
        self.entries += 1
        if self.entries > self.limits.entries:
            raise too_large(f"more than {self.limits.entries} entries")

    def count_bytes(self, amount: int) -> None:
        """Count unpacked bytes; raises ``Refused`` above the total or the ratio."""
        self.out_bytes += amount
        if self.out_bytes > self.limits.total_bytes:
            raise too_large(f"more than {self.limits.total_bytes} bytes come out of it")
        ratio = self.out_bytes / max(1, self.packed_bytes)
        if self.out_bytes > self.limits.ratio_free_bytes and ratio > self.limits.ratio:
            raise too_large(f"{self.out_bytes} bytes came out of {self.packed_bytes} (limit {self.limits.ratio}:1)")

    def store(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write one file's bytes as they come."""
        path = self.folder / f"{len(self.files):06d}"
        first = True
        with path.open("xb") as target:
            for chunk in chunks:
                if first and _is_nested(name, chunk):
                    raise too_large(f"{clipped(name)!r} is an archive inside the archive")
                first = False
                self.count_bytes(len(chunk))
                target.write(chunk)
        self.files[name] = path


def archive_kind(start: bytes) -> str | None:
    """Kind of archive that begins with ``start`` (at least 262 bytes where there are as many), or ``None``."""
    for magic, kind in (
        (b"PK\x03\x04", "zip"),
        (b"PK\x05\x06", "zip"),
        (b"\x1f\x8b", "gzip"),
        (b"Rar!\x1a\x07", "rar"),
        (b"7z\xbc\xaf\x27\x1c", "7z"),
        (b"BZh", "bzip2"),
        (b"\xfd7zXZ\x00", "xz"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
    ):
        if start.startswith(magic):
            return kind
    return "tar" if start[257:262] == b"ustar" else None


def _is_nested(name: str, start: bytes) -> bool:
    lower = name.lower()
    if lower.endswith(ARCHIVE_SUFFIXES):
        return True
    return archive_kind(start) is not None and not lower.endswith(_PICKLE_SUFFIXES)


def too_large(found: str) -> Refused:
    """The refusal of an archive that unpacks to more than its limits."""
    return Refused(
        failed(
            CHECK,
            Finding.ARCHIVE_TOO_LARGE,
            f"Unpacking was stopped: {found}.",
            "Upload only the adapter's folder (adapter_config.json and adapter_model.safetensors).",
        )
    )


def corrupt(found: str) -> Refused:
    """The refusal of an archive that does not read to its end."""
    return Refused(
        failed(
            CHECK,
            Finding.ARCHIVE_CORRUPT,
            f"The archive cannot be read: {found}.",
            "Pack the folder again and compare the file's size before and after the upload.",
        )
    )


def unsupported(found: str) -> Refused:
    """The refusal of a kind of archive that is not read."""
    return Refused(
        failed(
            CHECK,
            Finding.ARCHIVE_UNSUPPORTED,
            f"{found}.",
            "Pack the adapter's folder as .zip or .tar.gz without a password, or upload the files themselves.",
        )
    )
