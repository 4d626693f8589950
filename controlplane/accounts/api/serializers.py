"""Bodies of keys and of who asks."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from rest_framework import serializers

from controlplane.accounts.models import ApiKey, Membership
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
    max_in_flight = serializers.IntegerField(allow_null=True)
    requests_per_minute = serializers.IntegerField(allow_null=True)

    def get_created_by(self, key: ApiKey) -> str | None:
        return key.created_by.get_username() if key.created_by else None


class NewKeyBody(KeyBody):
    """A key just made: ``secret`` is shown this once."""

    secret = serializers.CharField()


class KeyChangeForm(serializers.Serializer[Any]):
    """What may change of a key. Limits are enforced by the gateway; null is none."""

    name = serializers.CharField(max_length=100, required=False)
    expires_at = serializers.DateTimeField(required=False, allow_null=True)
    max_in_flight = serializers.IntegerField(required=False, allow_null=True, min_value=1, max_value=1_000_000)
    requests_per_minute = serializers.IntegerField(required=False, allow_null=True, min_value=1, max_value=10_000_000)

    def validate_expires_at(self, value: Any) -> Any:
        if value is not None and value <= timezone.now():
            raise serializers.ValidationError("is in the past")
        return value


class KeyForm(KeyChangeForm):
    """A new key. ``team`` may be left out by who belongs to one."""

    name = serializers.CharField(max_length=100)
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=SCOPES), min_length=1)
    team = serializers.CharField(required=False, max_length=63)


class TeamBody(serializers.Serializer[Any]):
    """A team and what may be done in it."""

    name = serializers.CharField()
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=SCOPES))


class NewTeamForm(serializers.Serializer[Any]):
    """A new team, owned by who asks."""

    name = serializers.CharField(max_length=63)


class MemberBody(serializers.Serializer[Membership]):
    """A person's role in a team."""

    user = serializers.CharField(source="user.username")
    role = serializers.ChoiceField(choices=Membership.Role.choices)
    created_at = serializers.DateTimeField()


class RoleForm(serializers.Serializer[Any]):
    """A role."""

    role = serializers.ChoiceField(choices=Membership.Role.choices)


class MemberForm(RoleForm):
    """A person, by user name, and their role."""

    user = serializers.CharField(max_length=150)


class MeBody(serializers.Serializer[Any]):
    """Who asks, and where requests go."""

    user = serializers.CharField(allow_null=True)
    team = serializers.CharField(allow_null=True)
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=SCOPES))
    teams = TeamBody(many=True)
    web_url = serializers.CharField()
    gateway_url = serializers.CharField()
