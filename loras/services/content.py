"""Content-addressed files: stored once, collected when nothing uses them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import structlog
from django.db import transaction
from django.utils import timezone

from loras.models import Artifact
from loras.storage import artifact_store
from loras.uploads.handlers import disk_error

log = structlog.get_logger("loras.content")

UNUSED_KEPT = timedelta(hours=24)


def store_content(location: Path, sha256: str, size_bytes: int) -> None:
    """Move a file into the store. Raises ``ShoalError(STORAGE_FULL)`` when it has no room.

    The row comes first: while it is fresh, unused content is not collected, so that nothing removes the bytes
    between here and the version that will use them.
    """
    Artifact.objects.update_or_create(sha256=sha256, defaults={"size_bytes": size_bytes, "stored_at": timezone.now()})
    try:
        artifact_store().put_file(location, sha256)
    except OSError as error:
        raise disk_error(error) from error


def discard_unused_content() -> int:
    """Delete content that no version has used for a day; how many. Safe beside uploads of the same bytes: they
    refresh the row first, and wait for this transaction when it is deleting that row."""
    limit = timezone.now() - UNUSED_KEPT
    unused = Artifact.objects.filter(uses=None, stored_at__lt=limit).values_list("sha256", flat=True)
    deleted = 0
    for sha256 in list(unused[:100]):
        with transaction.atomic():
            rows, _ = Artifact.objects.filter(sha256=sha256, uses=None, stored_at__lt=limit).delete()
            if rows:
                artifact_store().delete(sha256)
                deleted += 1
    if deleted:
        log.info("unused content deleted", files=deleted)
    return deleted
