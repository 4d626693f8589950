"""Where the bytes of artifacts are: content-addressed, immutable, by SHA-256."""

from __future__ import annotations

from functools import cache
from urllib.parse import unquote, urlsplit

from django.conf import settings

from loras.storage.files import FileStore
from loras.storage.port import ArtifactStore, MissingContent, is_intact

__all__ = ["ArtifactStore", "MissingContent", "artifact_store", "is_intact", "store_from_url"]


def artifact_store() -> ArtifactStore:
    """The store that ``SHOAL_STORAGE_URL`` names."""
    return store_from_url(settings.SHOAL.storage_url or f"file://{settings.SHOAL.home / 'artifacts'}")


@cache
def store_from_url(url: str) -> ArtifactStore:
    """The store at ``file:///absolute/path`` or ``s3://bucket/prefix?endpoint_url=…&region_name=…``.

    Raises ``ImproperlyConfigured`` for another scheme, or for S3 without its library.
    """
    parts = urlsplit(url)
    if parts.scheme == "s3":
        from loras.storage.remote import s3_store

        return s3_store(parts)
    from pathlib import Path

    return FileStore(Path(unquote(parts.path)))
