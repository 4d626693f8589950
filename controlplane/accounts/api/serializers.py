"""Bodies of keys and of who asks."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from rest_framework import serializers

from controlplane.accounts.models import ApiKey
from wire.registry import Scope

SCOPES = [scope.value for scope in Scope]


class KeyBody(serializers.Serializer[ApiKey]):
    """An API key without its secret."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    team = serializers.CharField(source="team.name")
    prefix = serializers.CharField()
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=SCOPES))
    created_by = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)

    def get_created_by(self, key: ApiKey) -> str | None:
        return key.created_by.get_username() if key.created_by else None


class NewKeyBody(KeyBody):
    """A key just made: ``secret`` is shown this once."""

    secret = serializers.CharField()


class KeyForm(serializers.Serializer[Any]):
    """A new key. ``team`` may be left out by who belongs to one."""

    name = serializers.CharField(max_length=100)
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=SCOPES), min_length=1)
    team = serializers.CharField(required=False, max_length=63)
    expires_at = serializers.DateTimeField(required=False, allow_null=True)

    def validate_expires_at(self, value: Any) -> Any:
        if value is not None and value <= timezone.now():
            raise serializers.ValidationError("is in the past")
        return value


class TeamBody(serializers.Serializer[Any]):
    """A team and what may be done in it."""

    name = serializers.CharField()
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=SCOPES))


class MeBody(serializers.Serializer[Any]):
    """Who asks, and where requests go."""

    user = serializers.CharField(allow_null=True)
    team = serializers.CharField(allow_null=True)
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=SCOPES))
    teams = TeamBody(many=True)
    web_url = serializers.CharField()
    gateway_url = serializers.CharField()
