"""Who asks: the bearer key's SHA-256 looked up in the mirror of the key bucket."""

from __future__ import annotations

import hashlib

from wire.errors import Code, ShoalError
from wire.registry import KeyRecord, Scope

HINT = "Send `Authorization: Bearer shoal_…` with a key from the keys page."


def authenticate(
    authorization: bytes | None, keys: dict[str, KeyRecord], *, now: float, scopes: tuple[Scope, ...]
) -> KeyRecord:
    """The key's record. Raises ``ShoalError``: UNAUTHENTICATED, or FORBIDDEN when it allows none of ``scopes``."""
    if authorization is None:
        raise ShoalError(Code.UNAUTHENTICATED, "This request has no API key.", hint=HINT)
    kind, _, secret = authorization.partition(b" ")
    secret = secret.strip()
    if kind.lower() != b"bearer" or not secret:
        raise ShoalError(Code.UNAUTHENTICATED, "The Authorization header is not a bearer key.", hint=HINT)
    record = keys.get(hashlib.sha256(secret).hexdigest())
    if record is None:
        raise ShoalError(
            Code.UNAUTHENTICATED, "This API key is not known: mistyped, revoked or never issued.", hint=HINT
        )
    if record.expires is not None and record.expires <= now:
        raise ShoalError(Code.UNAUTHENTICATED, "This API key has expired.", hint="Issue a new one on the keys page.")
    if not any(record.allows(scope) for scope in scopes):
        wanted = " or ".join(f"`{scope.value}`" for scope in scopes)
        has = ", ".join(sorted(scope.value for scope in record.scopes)) or "none"
        raise ShoalError(
            Code.FORBIDDEN,
            f"This API key lacks the scope {wanted}; its scopes: {has}.",
            hint="Use a key that has it.",
        )
    return record
