"""REST views of what happens to versions and adapters after they are ready: retire, restore, resume, compare."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.accounts.api.permissions import principal_of
from controlplane.api.pagination import NewestFirst
from loras.api.answers import CHANGES, ERRORS, adapter_answer, version_answer
from loras.api.serializers import AdapterBody, VersionBody
from loras.comparison import compare_versions
from loras.models import Adapter
from loras.queries import deleted_adapters, get_adapter, get_deleted_adapter, get_version
from loras.services import restore_adapter, restore_version, resume_canary, retire_version
from loras.services.removal import DELETED_KEPT
from wire.errors import Code, ShoalError
from wire.registry import Scope


class DeletedAdapterBody(AdapterBody):
    """A deleted adapter."""

    deleted_at = serializers.DateTimeField()
    restorable_until = serializers.SerializerMethodField()

    def get_restorable_until(self, adapter: Adapter) -> str:
        assert adapter.deleted_at is not None  # noqa: S101  (the query has no others)
        return (adapter.deleted_at + DELETED_KEPT).isoformat()


class LineBody(serializers.Serializer[Any]):
    """One line of a comparison."""

    group = serializers.CharField()
    what = serializers.CharField()
    before = serializers.CharField()
    after = serializers.CharField()
    differs = serializers.BooleanField()


class ComparisonBody(serializers.Serializer[Any]):
    """Two versions side by side."""

    before = serializers.IntegerField()
    after = serializers.IntegerField()
    lines = LineBody(many=True)


class LastDeletedFirst(NewestFirst):
    """Deleted adapters by when it was."""

    ordering = ("-deleted_at", "-id")


class DeletedListView(ListAPIView[Adapter]):
    """Adapters of your teams that can be restored."""

    scopes = {"GET": Scope.READ}
    serializer_class = DeletedAdapterBody
    pagination_class: type[CursorPagination] = LastDeletedFirst

    def get_queryset(self) -> QuerySet[Adapter]:
        return deleted_adapters(principal_of(self.request))


class RestoreAdapterView(APIView):
    """A deleted adapter."""

    scopes = {"POST": Scope.PUSH}

    @extend_schema(request=None, responses={200: AdapterBody, **CHANGES})
    def post(self, request: Request, team: str, name: str) -> Response:
        """Bring it back with its versions and aliases, within seven days."""
        principal = principal_of(request)
        adapter = get_deleted_adapter(principal, team, name, scope=Scope.PUSH)
        restore_adapter(adapter=adapter, actor=principal.user)
        return adapter_answer(request, team, name)


class RetireView(APIView):
    """A version in service."""

    scopes = {"POST": Scope.PUSH}

    @extend_schema(request=None, responses={200: VersionBody, **CHANGES})
    def post(self, request: Request, team: str, name: str, number: int) -> Response:
        """Take it out of service and keep it on the list; refused while an alias points at it."""
        principal = principal_of(request)
        version = get_version(get_adapter(principal, team, name, scope=Scope.PUSH), number)
        retire_version(version=version, actor=principal.user)
        return version_answer(request, version)


class RestoreVersionView(APIView):
    """A retired or deleted version."""

    scopes = {"POST": Scope.PUSH}

    @extend_schema(request=None, responses={200: VersionBody, **CHANGES})
    def post(self, request: Request, team: str, name: str, number: int) -> Response:
        """Bring it back into service."""
        principal = principal_of(request)
        version = get_version(get_adapter(principal, team, name, scope=Scope.PUSH), number)
        restore_version(version=version, actor=principal.user)
        return version_answer(request, version)


class ResumeView(APIView):
    """A canary that was held."""

    scopes = {"POST": Scope.PUSH}

    @extend_schema(request=None, responses={200: AdapterBody, **CHANGES})
    def post(self, request: Request, team: str, name: str, alias: str) -> Response:
        """Put the split of before the hold back; it is judged anew by requests from now on."""
        principal = principal_of(request)
        adapter = get_adapter(principal, team, name, scope=Scope.PUSH)
        resume_canary(adapter=adapter, alias=alias, actor=principal.user)
        return adapter_answer(request, team, name)


class CompareView(APIView):
    """Two versions of one adapter."""

    scopes = {"GET": Scope.READ}

    @extend_schema(
        parameters=[OpenApiParameter("with", int, required=True, description="The other version's number.")],
        responses={200: ComparisonBody, **ERRORS},
    )
    def get(self, request: Request, team: str, name: str, number: int) -> Response:
        """Configuration, content, report, evaluation and the last day's figures, line by line."""
        adapter = get_adapter(principal_of(request), team, name)
        other = request.query_params.get("with", "")
        if not other.isascii() or not other.isdigit() or len(other) > 9:
            raise ShoalError(Code.INVALID_REQUEST, "`with` is the number of another version.", param="with")
        lines = compare_versions(adapter, number, int(other))
        return Response(ComparisonBody({"before": number, "after": int(other), "lines": lines}).data)
