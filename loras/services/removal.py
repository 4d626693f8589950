"""Taking versions and adapters out of service."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction

from controlplane.events.services import enqueue_outbox, record_event
from loras.live import publish_version
from loras.models import Adapter, Version
from loras.services.aliases import aliases_on
from loras.services.content import discard_unused_content
from loras.services.transitions import lock_adapter, move_version
from loras.states import State
from wire.errors import Code, ShoalError
from wire.subjects import ADAPTERS_BUCKET

__all__ = ["delete_adapter", "discard_unused_content", "retire_version"]


def retire_version(*, version: Version, actor: User | None = None) -> None:
    """Take a version out of service for good: ready → retired, an open question → rejected.

    Nothing happens when it is out of service already. Raises ``ShoalError``: IN_USE naming the aliases, CONFLICT
    while it is being validated, and for an upload whose content is another version's: it never was in service.
    """
    with transaction.atomic():
        adapter = lock_adapter(version.adapter_id)
        version.refresh_from_db(fields=["state", "duplicate_of"])
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
        enqueue_outbox(bucket=ADAPTERS_BUCKET, key=adapter.full_name)
        publish_version(version.pk)


def delete_adapter(*, adapter: Adapter, confirm: str, actor: User | None = None) -> None:
    """Delete an adapter with all versions and aliases; requests to it are unknown from then on.

    ``confirm`` must be its full name. Stored content that nothing else uses is deleted a day later. Raises
    ``ShoalError(CONFLICT)`` without the confirmation.
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
        adapter = lock_adapter(adapter.pk)
        versions = adapter.versions.count()
        adapter.delete()
        record_event(
            kind="adapter.deleted",
            subject=name,
            message=f"Adapter {name} deleted with {versions} versions",
            team=adapter.team,
            actor=actor,
            data={"adapter": name, "versions": versions},
        )
        enqueue_outbox(bucket=ADAPTERS_BUCKET, key=name)
