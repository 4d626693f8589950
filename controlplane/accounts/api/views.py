"""REST views of API keys and of who asks."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.accounts.api.permissions import principal_of
from controlplane.accounts.api.serializers import KeyBody, KeyChangeForm, KeyForm, MeBody, NewKeyBody
from controlplane.accounts.models import ApiKey, Team
from controlplane.accounts.principal import Principal
from controlplane.accounts.services import KeyLimits, change_api_key, issue_api_key, revoke_api_key
from controlplane.api.schema import ErrorBody
from wire.errors import Code, ShoalError
from wire.registry import Scope

ERRORS = {400: ErrorBody, 401: ErrorBody, 403: ErrorBody, 404: ErrorBody}


class KeyListView(ListAPIView[ApiKey]):
    """API keys of your teams."""

    scopes = {"GET": Scope.READ, "POST": Scope.ADMIN}
    serializer_class = KeyBody

    def get_queryset(self) -> QuerySet[ApiKey]:
        own = principal_of(self.request).team_ids
        return ApiKey.objects.filter(team_id__in=own).select_related("team", "created_by")

    @extend_schema(request=KeyForm, responses={201: NewKeyBody, **ERRORS})
    def post(self, request: Request) -> Response:
        """Make a key; the answer holds its secret, which nobody can read later."""
        form = KeyForm(data=request.data)
        form.is_valid(raise_exception=True)
        principal, wanted = principal_of(request), form.validated_data
        team = principal.team(wanted.get("team") or _only_team(principal), Scope.ADMIN)
        issued = issue_api_key(
            team=team,
            name=wanted["name"],
            scopes=[Scope(value) for value in wanted["scopes"]],
            expires_at=wanted.get("expires_at"),
            actor=principal.user,
            granted=principal.grantable(team.pk),
            limits=KeyLimits(wanted.get("max_in_flight"), wanted.get("requests_per_minute")),
        )
        return Response({**KeyBody(issued.key).data, "secret": issued.secret}, status=201)


class KeyView(APIView):
    """One API key."""

    scopes = {"DELETE": Scope.ADMIN, "PATCH": Scope.ADMIN}

    @extend_schema(request=KeyChangeForm, responses={200: KeyBody, **ERRORS, 409: ErrorBody})
    def patch(self, request: Request, key_id: int) -> Response:
        """Change its name, end or limits; gateways know within a second. What is left out stays."""
        principal, key = principal_of(request), _own_key(principal_of(request), key_id)
        form = KeyChangeForm(data=request.data)
        form.is_valid(raise_exception=True)
        wanted = form.validated_data
        changed = change_api_key(
            key=key,
            name=wanted.get("name", key.name),
            expires_at=wanted.get("expires_at", key.expires_at),
            limits=KeyLimits(
                wanted.get("max_in_flight", key.max_in_flight),
                wanted.get("requests_per_minute", key.requests_per_minute),
            ),
            actor=principal.user,
        )
        if not changed:
            raise ShoalError(Code.CONFLICT, f"The key {key.prefix}… is revoked.", hint="Make a new one.")
        return Response(KeyBody(key).data)

    @extend_schema(responses={204: None, **ERRORS})
    def delete(self, request: Request, key_id: int) -> Response:
        """Revoke a key; gateways forget it within a second."""
        principal = principal_of(request)
        revoke_api_key(key=_own_key(principal, key_id), actor=principal.user)
        return Response(status=204)


class MeView(APIView):
    """Who asks."""

    # keys of any scope ask this to find the gateway
    scopes = {"GET": None}

    @extend_schema(responses={200: MeBody, **ERRORS})
    def get(self, request: Request) -> Response:
        """Teams and scopes of the key or person that asks, and where inference requests go."""
        return Response(MeBody(_me(principal_of(request))).data)


def _own_key(principal: Principal, key_id: int) -> ApiKey:
    key = ApiKey.objects.filter(pk=key_id, team_id__in=principal.team_ids).select_related("team", "created_by").first()
    if key is None:
        raise ShoalError(Code.NOT_FOUND, f"There is no API key {key_id} for you.")
    principal.team(key.team.name, Scope.ADMIN)
    return key


def _me(principal: Principal) -> dict[str, Any]:
    teams = [
        {"name": team.name, "scopes": sorted(principal.grants[team.pk])}
        for team in Team.objects.filter(pk__in=principal.team_ids)
    ]
    return {
        "user": principal.user.get_username() if principal.user else None,
        "team": teams[0]["name"] if teams else None,
        "scopes": teams[0]["scopes"] if teams else [],
        "teams": teams,
        "web_url": settings.SHOAL.public_web_url,
        "gateway_url": settings.SHOAL.public_gateway_url,
    }


def _only_team(principal: Principal) -> str:
    names = list(Team.objects.filter(pk__in=principal.team_ids).values_list("name", flat=True))
    if len(names) != 1:
        raise ShoalError(
            Code.INVALID_REQUEST, "Say for which team the key is.", param="team", hint=f"Yours: {', '.join(names)}."
        )
    return str(names[0])
