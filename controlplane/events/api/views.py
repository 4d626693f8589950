"""``events/``: what happened in your teams."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.accounts.api.permissions import principal_of
from controlplane.events.models import Event
from loras.queries import events_of
from wire.registry import Scope

FILTERS = ("adapter", "kind", "team", "actor")


class EventBody(serializers.Serializer[Event]):
    """One event. ``subject`` is what it happened to: an adapter, ``team/adapter@3``, a key."""

    id = serializers.IntegerField()
    kind = serializers.CharField()
    subject = serializers.CharField()
    message = serializers.CharField()
    team = serializers.CharField(source="team.name", default=None, allow_null=True)
    actor = serializers.SerializerMethodField()
    data = serializers.DictField()  # type: ignore[assignment]
    created_at = serializers.DateTimeField()

    def get_actor(self, event: Event) -> str | None:
        return event.actor.get_username() if event.actor else None


class EventListView(ListAPIView[Event]):
    """Events of your teams, newest first."""

    scopes = {"GET": Scope.READ}
    serializer_class = EventBody

    def get_queryset(self) -> QuerySet[Event]:
        wanted = self.request.query_params
        return events_of(principal_of(self.request), **{name: wanted.get(name, "") for name in FILTERS})

    @extend_schema(parameters=[OpenApiParameter(name, str) for name in FILTERS])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Page through events. `adapter` (team/adapter) limits them to one adapter and its versions, `kind` is a kind
        or its first word, `actor` a user name."""
        return super().get(request, *args, **kwargs)
