"""What the rest of the application needs from a store."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Protocol


class MissingContent(LookupError):
    """No bytes are stored under this SHA-256."""


class ArtifactStore(Protocol):
    """Immutable content by SHA-256 (hex). All verbs may be repeated."""

    def put_file(self, path: Path, sha256: str) -> None:
        """Take over the file at ``path``, whose SHA-256 the caller has computed; ``path`` is gone afterwards.

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
