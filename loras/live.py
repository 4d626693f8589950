"""What the pages of an adapter are told live, and how it is published."""

from __future__ import annotations

from typing import Any

import msgspec
import structlog
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction
from redis.exceptions import RedisError

from loras.models import Adapter, Version
from wire.codec import decode_json, encode_json
from wire.reports import Report

log = structlog.get_logger("loras.live")


class VersionUpdate(msgspec.Struct, frozen=True, tag="version", omit_defaults=True):
    """State of one version. ``duplicate_of`` is the number of the version that holds the same content."""

    number: int
    state: str
    digest: str
    mode: str
    mode_reason: str
    report: Report | None = None
    duplicate_of: int | None = None


class AliasesUpdate(msgspec.Struct, frozen=True, tag="aliases"):
    """All aliases: name → version number → weight."""

    aliases: dict[str, dict[int, int]]


class Snapshot(msgspec.Struct, frozen=True, tag="snapshot"):
    """Everything at the time of connecting, versions newest first (at most 50)."""

    name: str
    base_model: str | None
    versions: list[VersionUpdate]
    aliases: dict[str, dict[int, int]]


def adapter_group(adapter_id: int) -> str:
    """Channels group of the pages of one adapter."""
    return f"adapter.{adapter_id}"


def snapshot_for(adapter_id: int) -> Snapshot:
    """The snapshot of one adapter. Raises ``Adapter.DoesNotExist``."""
    adapter = Adapter.objects.select_related("team", "base_model").get(pk=adapter_id)
    versions = adapter.versions.select_related("duplicate_of").order_by("-number")[:50]
    return Snapshot(
        name=adapter.full_name,
        base_model=adapter.base_model.model_id if adapter.base_model else None,
        versions=[version_update(version) for version in versions],
        aliases=_aliases(adapter),
    )


def version_update(version: Version) -> VersionUpdate:
    """The message about ``version`` as it is now."""
    return VersionUpdate(
        number=version.number,
        state=version.state,
        digest=version.digest,
        mode=version.mode,
        mode_reason=version.mode_reason,
        report=decode_json(encode_json(version.report), Report) if version.report else None,
        duplicate_of=version.duplicate_of.number if version.duplicate_of else None,
    )


def publish_version(version_id: int) -> None:
    """Tell the adapter's pages about a version, after commit."""
    transaction.on_commit(lambda: _publish_version(version_id), robust=True)


def publish_aliases(adapter: Adapter) -> None:
    """Tell the adapter's pages where its aliases point, after commit."""
    transaction.on_commit(lambda: _send(adapter.pk, AliasesUpdate(_aliases(adapter))), robust=True)


def _publish_version(version_id: int) -> None:
    version = Version.objects.select_related("duplicate_of").filter(pk=version_id).first()
    if version is not None:
        _send(version.adapter_id, version_update(version))


def _send(adapter_id: int, message: msgspec.Struct) -> None:
    event: dict[str, Any] = {"type": "adapter.changed", "text": encode_json(message).decode()}
    layer = get_channel_layer()
    try:
        async_to_sync(layer.group_send)(adapter_group(adapter_id), event)
    except (RedisError, OSError) as error:
        # a page without its update asks again when it reconnects; serving does not depend on it
        log.warning("live update not sent", adapter_id=adapter_id, error=str(error)[:200])


def _aliases(adapter: Adapter) -> dict[str, dict[int, int]]:
    return {
        alias.name: {int(number): int(weight) for number, weight in alias.split.items()}
        for alias in adapter.aliases.all()
    }
