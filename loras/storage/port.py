"""What the rest of the application needs from a store."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import BinaryIO, Protocol

_CHUNK_BYTES = 1024 * 1024


class MissingContent(LookupError):
    """No bytes are stored under this SHA-256."""


class ArtifactStore(Protocol):
    """Immutable content by SHA-256 (hex). All verbs may be repeated."""

    def put_file(self, path: Path, sha256: str) -> None:
        """Take over the file at ``path``, whose SHA-256 the caller has computed; ``path`` is gone afterwards.

        Content that is stored already stays, unless its bytes are not what they should be: then the file replaces it.
        Readers see the whole content or none. Raises ``OSError`` (disk full) with nothing left behind.
        """

    def exists(self, sha256: str) -> bool:
        """Whether the content is there."""

    def open(self, sha256: str) -> BinaryIO:
        """A seekable stream. Raises ``MissingContent``."""

    def copy_to(self, sha256: str, destination: Path) -> None:
        """A local file with this content at ``destination``, not to be written to. Raises ``MissingContent``."""

    def delete(self, sha256: str) -> None:
        """Forget the content; nothing happens when it is not there."""


def is_intact(store: ArtifactStore, sha256: str) -> bool:
    """Whether the content is there with the bytes that its SHA-256 names; reads all of it."""
    found = hashlib.sha256()
    try:
        with store.open(sha256) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                found.update(chunk)
    except MissingContent:
        return False
    return found.hexdigest() == sha256
