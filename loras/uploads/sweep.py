"""Uploads that nobody finished: their bytes go a day after the last one came."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from pathlib import Path

import structlog
from django.conf import settings
from django.utils import timezone

from controlplane.events.services import record_event
from loras.models import Upload
from loras.uploads import parts
from loras.uploads.quotas import size_words
from wire.errors import Code, ShoalError

log = structlog.get_logger("loras.uploads")

ROWS = 500
# how long an ended upload still answers with what became of it
ENDED_KEPT = timedelta(days=7)
STRAY_KEPT_S = 3600


def expires_at(upload: Upload) -> datetime:
    """When the upload is given up unless another byte comes."""
    return upload.touched_at + timedelta(seconds=settings.SHOAL.upload_expires_s)


def sweep_uploads() -> int:
    """Give up what expired, forget what ended long ago, delete files without a row; how many were given up."""
    limit = timezone.now() - timedelta(seconds=settings.SHOAL.upload_expires_s)
    expired = Upload.objects.filter(state=Upload.State.OPEN, touched_at__lt=limit).select_related("team")
    given_up = sum(_give_up(upload, limit) for upload in expired.order_by("touched_at")[:ROWS])
    Upload.objects.exclude(state=Upload.State.OPEN).filter(touched_at__lt=limit - ENDED_KEPT).delete()
    _remove_strays()
    if given_up:
        log.info("unfinished uploads given up", uploads=given_up)
    return given_up


def _give_up(upload: Upload, limit: datetime) -> int:
    try:
        if not upload.stored:
            with parts.locked_part(upload.pk):
                return _expire(upload, limit)
    except ShoalError as error:
        if error.code is Code.UPLOAD_LOCKED:
            # a byte comes this moment
            return 0
    return _expire(upload, limit)


def _expire(upload: Upload, limit: datetime) -> int:
    rows = Upload.objects.filter(pk=upload.pk, state=Upload.State.OPEN, touched_at__lt=limit)
    changed = rows.update(state=Upload.State.EXPIRED)
    if changed:
        parts.remove_part(upload.pk)
        name = f"{upload.team.name}/{upload.adapter}" if upload.adapter else upload.team.name
        record_event(
            kind="upload.expired",
            subject=name,
            message=f"Upload of {upload.path} given up at {size_words(upload.offset_bytes)} of"
            f" {size_words(upload.size_bytes)}",
            team=upload.team,
            data={"upload": upload.pk, "adapter": name},
        )
    return changed


def _remove_strays() -> None:
    """Files of processes that died between the file and its row."""
    limit = time.time() - STRAY_KEPT_S
    known = set(Upload.objects.filter(state=Upload.State.OPEN).values_list("pk", flat=True))
    for path in Path(settings.SHOAL_UPLOADS_DIR).glob("*"):
        if path.suffix == ".part" and path.stem in known:
            continue
        try:
            # a link that a completion has just made has the age of its bytes, but a fresh change time
            if path.stat().st_ctime < limit:
                path.unlink()
        except FileNotFoundError:
            continue
