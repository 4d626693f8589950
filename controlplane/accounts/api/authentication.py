"""``Authorization: Bearer shoal_…``."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from controlplane.accounts.models import ApiKey
from controlplane.accounts.services import find_usable_key, note_key_use


class ApiKeyAuthentication(BaseAuthentication):
    """A key authenticates its maker; ``request.auth`` is the key and decides what is allowed."""

    def authenticate(self, request: Request) -> tuple[AbstractBaseUser | AnonymousUser, ApiKey] | None:
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            return None
        key = find_usable_key(secret.strip())
        if key is None:
            raise AuthenticationFailed("The API key is unknown, expired or revoked.")
        note_key_use(key)
        return key.created_by or AnonymousUser(), key

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="shoal"'


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the schema describes it."""

    target_class = "controlplane.accounts.api.authentication.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "shoal_…"}
