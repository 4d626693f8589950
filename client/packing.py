"""Which files of a path are sent: everything a version can be made of, and none of what training leaves beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from client.errors import ClientError

LEFT_OUT = frozenset(
    {
        "optimizer.pt",
        "optimizer.bin",
        "scheduler.pt",
        "scaler.pt",
        "training_args.bin",
        "trainer_state.json",
        ".DS_Store",
    }
)
LEFT_OUT_FOLDERS = frozenset({".git", "__pycache__", "__MACOSX", ".ipynb_checkpoints"})


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file to send and the name it is sent under (relative, with ``/``)."""

    path: Path
    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Package:
    """What is sent, and what was left out (relative names)."""

    files: list[LocalFile]
    left_out: list[str]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def collect(path: Path) -> Package:
    """Files below ``path`` (a folder, an archive or one file), in name order. Raises ``ClientError``."""
    if path.is_file():
        return Package([LocalFile(path, path.name, path.stat().st_size)], [])
    if not path.is_dir():
        raise ClientError(f"{path} does not exist.")
    files, left_out = [], []
    for found in sorted(item for item in path.rglob("*") if item.is_file()):
        name = found.relative_to(path).as_posix()
        if _unwanted(found.relative_to(path)):
            left_out.append(name)
        else:
            files.append(LocalFile(found, name, found.stat().st_size))
    if not files:
        raise ClientError(f"{path} has no file to send.")
    return Package(files, left_out)


def _unwanted(relative: Path) -> bool:
    return (
        relative.name in LEFT_OUT
        or relative.name.startswith(("rng_state", "._"))
        or any(part in LEFT_OUT_FOLDERS for part in relative.parts[:-1])
    )
