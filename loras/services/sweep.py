"""The sweeper: no version waits for ever, whatever process died. Safe to run twice and beside everything else."""

from __future__ import annotations

import contextlib
import shutil
import time
from datetime import timedelta
from pathlib import Path

import structlog
from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from controlplane.dispatch import dispatch_now
from loras.models import Version
from loras.services.transitions import move_version
from loras.services.validations import MAX_ATTEMPTS, reject_crashed, release_claim
from loras.states import TABLE, State

log = structlog.get_logger("loras.sweep")

# a queued validation that nobody claimed for so long may have been lost with Redis; a second task does no harm
UNCLAIMED_AFTER = timedelta(seconds=30)
INCOMING_KEPT_S = 3600
ROWS = 200


def sweep_versions() -> int:
    """Move on every version that waits too long; how many."""
    moved = _sweep_claimed() + _sweep_unclaimed()
    for state in (State.RECEIVING, State.NEEDS_INPUT):
        moved += _sweep_expired(state)
    if moved:
        log.info("swept", versions=moved)
    return moved


def sweep_incoming_files() -> int:
    """Delete what killed processes left below ``incoming`` and ``validation``; how many."""
    limit = time.time() - INCOMING_KEPT_S
    removed = 0
    for directory in (settings.SHOAL_INCOMING_DIR, settings.SHOAL.home / "validation"):
        for path in Path(directory).glob("*"):
            # an upload or a validation that ends now removes its own entry first
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime >= limit:
                    continue
                shutil.rmtree(path) if path.is_dir() else path.unlink()
                removed += 1
    return removed


def _sweep_claimed() -> int:
    """Validations whose process must be dead: again, or rejected when it was the last attempt."""
    limit = timezone.now() - timedelta(seconds=settings.SHOAL.sweep_after_s)
    moved = 0
    rows = Version.objects.filter(state=State.VALIDATING, claimed_at__lt=limit).select_related("adapter__team")
    for version in rows[:ROWS]:
        claimed_at = version.claimed_at
        if claimed_at is None:
            continue
        log.warning("validation died", version=str(version), attempt=version.attempts)
        if version.attempts >= MAX_ATTEMPTS:
            moved += reject_crashed(version=version, claimed_at=claimed_at)
        else:
            moved += release_claim(version_id=version.pk, claimed_at=claimed_at)
    return moved


def _sweep_unclaimed() -> int:
    from loras.tasks import validate_version

    limit = timezone.now() - UNCLAIMED_AFTER
    lost = Q(dispatched_at=None) | Q(dispatched_at__lt=limit)
    moved = 0
    for pk in Version.objects.filter(lost, state=State.VALIDATING, claimed_at=None).values_list("pk", flat=True)[:ROWS]:
        if not dispatch_now(validate_version, pk):
            break
        Version.objects.filter(pk=pk).update(dispatched_at=timezone.now())
        moved += 1
    return moved


def _sweep_expired(state: State) -> int:
    rule = TABLE[state]
    if rule.timeout_s is None or rule.on_timeout is None:
        return 0
    limit = timezone.now() - timedelta(seconds=rule.timeout_s)
    moved = 0
    for version in Version.objects.filter(state=state, state_since__lt=limit).select_related("adapter__team")[:ROWS]:
        days = rule.timeout_s / 86_400
        message = f"{version} {rule.on_timeout.value}: {state.value} for more than {days:g} days"
        moved += move_version(version=version, to=rule.on_timeout, message=message)
    return moved
