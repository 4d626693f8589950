"""Artifacts as files: ``<root>/ab/abcdef…``."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from pathlib import Path
from typing import BinaryIO

from loras.storage.port import MissingContent, is_intact


class FileStore:
    """Content in a directory. A file appears by rename after its bytes were synced, so that a kill or a power loss
    leaves either the whole content or none."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put_file(self, path: Path, sha256: str) -> None:
        target = self._path(sha256)
        if is_intact(self, sha256):
            path.unlink()
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        staged = target.with_name(f".{sha256}.{secrets.token_hex(6)}")
        try:
            _move(path, staged)
            with staged.open("rb") as stream:
                os.fsync(stream.fileno())
            staged.chmod(0o444)
            staged.replace(target)
        finally:
            staged.unlink(missing_ok=True)
        _sync_directory(target.parent)

    def exists(self, sha256: str) -> bool:
        return self._path(sha256).is_file()

    def open(self, sha256: str) -> BinaryIO:
        try:
            return self._path(sha256).open("rb")
        except FileNotFoundError:
            raise MissingContent(sha256) from None

    def copy_to(self, sha256: str, destination: Path) -> None:
        source = self._path(sha256)
        try:
            # a link costs nothing; the stored file is read-only
            os.link(source, destination)
        except FileNotFoundError:
            if source.exists():
                raise
            raise MissingContent(sha256) from None
        except OSError as error:
            if error.errno not in {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP}:
                raise
            shutil.copyfile(source, destination)

    def delete(self, sha256: str) -> None:
        self._path(sha256).unlink(missing_ok=True)

    def _path(self, sha256: str) -> Path:
        if len(sha256) != 64 or not all(char in "0123456789abcdef" for char in sha256):
            raise MissingContent(sha256[:80])
        return self.root / sha256[:2] / sha256


def _move(source: Path, target: Path) -> None:
    """Rename, or copy between file systems."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copyfile(source, target)
        source.unlink()


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # some file systems refuse it for directories; the rename itself stands
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
