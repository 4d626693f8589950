"""Records of API keys as gateways read them."""

from __future__ import annotations

from controlplane.accounts.models import ApiKey
from wire.registry import KeyRecord, Scope


def key_records(sha256s: list[str] | None = None) -> dict[str, KeyRecord]:
    """Records of usable keys by SHA-256 of the secret: of all, or of those among ``sha256s``."""
    rows = ApiKey.objects.usable().select_related("team")
    if sha256s is not None:
        rows = rows.filter(sha256__in=sha256s)
    return {row.sha256: _record(row) for row in rows}


def _record(key: ApiKey) -> KeyRecord:
    return KeyRecord(
        id=key.prefix,
        team=key.team.name,
        scopes=[Scope(value) for value in key.scopes],
        expires=key.expires_at.timestamp() if key.expires_at else None,
        max_in_flight=key.max_in_flight,
        requests_per_minute=key.requests_per_minute,
    )
