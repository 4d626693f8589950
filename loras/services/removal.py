"""Taking versions and adapters out of service, deleting them softly, and bringing them back."""

from __future__ import annotations

from datetime import timedelta

import structlog
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from controlplane.events.services import record_event
from loras.live import publish_version
from loras.models import Adapter, Version
from loras.registry import publish_adapter_records, publish_version_records
from loras.services.aliases import aliases_on
from loras.services.content import discard_unused_content
from loras.services.transitions import lock_adapter, move_version
from loras.states import State
from wire.errors import Code, ShoalError

__all__ = [
    "DELETED_KEPT",
    "delete_adapter",
    "delete_version",
    "discard_unused_content",
    "purge_deleted",
    "restore_adapter",
    "restore_version",
    "retire_version",
]

DELETED_KEPT = timedelta(days=7)
PURGE_ROWS = 100
log = structlog.get_logger("loras.removal")


def retire_version(*, version: Version, actor: User | None = None) -> None:
    """Take a version out of service: ready → retired, an open question → rejected.

    Nothing happens when it is out of service already. Raises ``ShoalError``: IN_USE naming the aliases, CONFLICT
    while it is being validated, and for an upload whose content is another version's: it never was in service.
    """
    with transaction.atomic():
        adapter = lock_adapter(version.adapter_id)
        version.refresh_from_db(fields=["state", "duplicate_of", "deleted_at"])
        _retire(adapter, version, actor)


def delete_version(*, version: Version, actor: User | None = None) -> None:
    """Take a version out of service and out of every list; it can be restored for seven days.

    Raises ``ShoalError`` as :func:`retire_version` does. Nothing happens when it was deleted before.
    """
    with transaction.atomic():
        adapter = lock_adapter(version.adapter_id)
        version.refresh_from_db(fields=["state", "duplicate_of", "deleted_at"])
        if version.deleted_at is not None:
            return
        _retire(adapter, version, actor)
        version.deleted_at = timezone.now()
        version.save(update_fields=["deleted_at"])
        _note(
            "version.deleted", str(version), adapter, actor, f"{version} deleted; it can be restored until {_until()}"
        )
        publish_version(version.pk)


def restore_version(*, version: Version, actor: User | None = None) -> None:
    """Bring a retired or deleted version back: one that was ready serves again by its number.

    Raises ``ShoalError(CONFLICT)`` when it is neither.
    """
    with transaction.atomic():
        adapter = lock_adapter(version.adapter_id)
        version.refresh_from_db(fields=["state", "deleted_at", "ready_at"])
        if version.deleted_at is None and version.state != State.RETIRED:
            raise ShoalError(Code.CONFLICT, f"{version} is {version.state}; there is nothing to restore.")
        if version.deleted_at is not None:
            version.deleted_at = None
            version.save(update_fields=["deleted_at"])
            _note("version.restored", str(version), adapter, actor, f"{version} restored")
        if version.state == State.RETIRED:
            move_version(version=version, to=State.READY, message=f"{version} is in service again", actor=actor)
        publish_version_records(version)
        publish_version(version.pk)


def delete_adapter(*, adapter: Adapter, confirm: str, actor: User | None = None) -> None:
    """Delete an adapter with all versions and aliases; requests to it are unknown from then on.

    ``confirm`` must be its full name. It can be restored for seven days. Raises ``ShoalError(CONFLICT)`` without the
    confirmation.
    """
    name = adapter.full_name
    if confirm != name:
        raise ShoalError(
            Code.CONFLICT,
            f"Deleting {name} ends all requests to it.",
            param="confirm",
            hint=f"Send confirm={name} if you mean it.",
        )
    with transaction.atomic():
        if not Adapter.objects.filter(pk=adapter.pk).update(deleted_at=timezone.now()):
            return
        versions = adapter.versions.filter(duplicate_of=None, deleted_at=None).count()
        text = f"Adapter {name} deleted with {versions} versions; it can be restored until {_until()}"
        _note("adapter.deleted", name, adapter, actor, text)
        publish_adapter_records(adapter)


def restore_adapter(*, adapter: Adapter, actor: User | None = None) -> None:
    """Bring a deleted adapter back with its versions and aliases.

    Raises ``ShoalError(CONFLICT)`` when another adapter has its name by now.
    """
    with transaction.atomic():
        if Adapter.objects.filter(team=adapter.team, name=adapter.name).exclude(pk=adapter.pk).exists():
            raise ShoalError(
                Code.CONFLICT,
                f"Another adapter is called {adapter.full_name} by now.",
                hint="Delete that one first if you want this one back.",
            )
        if Adapter.everything.filter(pk=adapter.pk).exclude(deleted_at=None).update(deleted_at=None):
            adapter.deleted_at = None
            _note("adapter.restored", adapter.full_name, adapter, actor, f"Adapter {adapter.full_name} restored")
            publish_adapter_records(adapter)


def purge_deleted() -> int:
    """Remove for good what was deleted seven days ago; how many rows. Its bytes go once nothing else uses them."""
    limit = timezone.now() - DELETED_KEPT
    gone = 0
    for adapter in Adapter.everything.filter(deleted_at__lt=limit).select_related("team")[:PURGE_ROWS]:
        with transaction.atomic():
            # asked again under its lock: it may have been restored meanwhile
            if Adapter.everything.filter(pk=adapter.pk, deleted_at__lt=limit).delete()[0]:
                _note("adapter.purged", adapter.full_name, adapter, None, f"Adapter {adapter.full_name} is gone")
                gone += 1
    for version in Version.objects.filter(deleted_at__lt=limit).select_related("adapter__team")[:PURGE_ROWS]:
        with transaction.atomic():
            if Version.objects.filter(pk=version.pk, deleted_at__lt=limit).delete()[0]:
                _note("version.purged", str(version), version.adapter, None, f"{version} is gone")
                gone += 1
    if gone:
        log.info("deleted rows purged", rows=gone)
    return gone


def _retire(adapter: Adapter, version: Version, actor: User | None) -> None:
    if version.duplicate_of is not None:
        raise ShoalError(
            Code.CONFLICT,
            f"{version} is no version of its own: its content is {version.duplicate_of}.",
            param="version",
            hint=f"Nothing was retired. Name {version.duplicate_of.number} if you mean that version.",
        )
    if version.state in {State.RETIRED, State.REJECTED}:
        return
    if version.state in {State.VALIDATING, State.RECEIVING}:
        raise ShoalError(Code.CONFLICT, f"{version} is {version.state}; wait for its verdict.")
    used_by = aliases_on(adapter, version.number)
    if used_by:
        raise ShoalError(
            Code.IN_USE,
            f"{version} answers for the alias {', '.join(used_by)}.",
            param="version",
            hint="Point the alias at another version first.",
            detail={"aliases": used_by},
        )
    to = State.RETIRED if version.state == State.READY else State.REJECTED
    move_version(version=version, to=to, message=f"{version} {to.value}", actor=actor)
    publish_version_records(version)
    publish_version(version.pk)


def _note(kind: str, subject: str, adapter: Adapter, actor: User | None, message: str) -> None:
    data = {"adapter": adapter.full_name}
    record_event(kind=kind, subject=subject, message=message, team=adapter.team, actor=actor, data=data)


def _until() -> str:
    return f"{timezone.now() + DELETED_KEPT:%Y-%m-%d %H:%M} UTC"
