"""REST views of adapters and versions: parse, one service call, render."""

from __future__ import annotations

from typing import Any, cast

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.pagination import CursorPagination
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.accounts.api.permissions import principal_of
from controlplane.api.pagination import NewestFirst
from controlplane.api.parsers import FolderMultiPartParser, StrictJSONParser
from controlplane.api.schema import ErrorBody
from loras.api.answers import CHANGES, ERRORS, adapter_answer, version_answer
from loras.api.attached import take_evaluation
from loras.api.serializers import (
    AdapterBody,
    AliasForm,
    AnswerForm,
    NewAdapterForm,
    RollbackForm,
    UploadForm,
    VersionBody,
    version_url,
)
from loras.api.splits import read_expect, read_split
from loras.models import Adapter, Version
from loras.queries import adapters_of, get_adapter, get_version, resolve_version, version_rows, versions_of
from loras.services import (
    answer_question,
    delete_adapter,
    delete_version,
    move_alias,
    receive_upload,
    remove_alias,
    rollback,
)
from loras.uploads.gate import quota_gate
from loras.uploads.handlers import raise_upload_error
from loras.uploads.quotas import check_received
from loras.uploads.receive import received_files
from wire.names import parse_full_name
from wire.registry import Scope

UPLOADS = {200: VersionBody, 201: VersionBody, **CHANGES, 413: ErrorBody, 507: ErrorBody}
FILTERS = [OpenApiParameter(name, str) for name in ("search", "base_model", "kind", "state")]
READ_PUSH = {"GET": Scope.READ, "POST": Scope.PUSH, "PUT": Scope.PUSH, "DELETE": Scope.PUSH}


class LastChangedFirst(NewestFirst):
    """Adapters by their last change."""

    ordering = ("-updated_at", "-id")


class HighestNumberFirst(NewestFirst):
    """Versions by number."""

    ordering = "-number"


class UploadMixin(APIView):
    """Uploads: the files stream to disk while the body is parsed, before any of this runs."""

    def get_parsers(self) -> list[BaseParser]:
        return [FolderMultiPartParser(), StrictJSONParser()]

    def upload_form(self, request: Request, kind: type[UploadForm], name: str = "") -> dict[str, Any]:
        """The checked fields; what went wrong while the files streamed is raised before them. ``name`` is the adapter
        where the address says it."""
        length = request.headers.get("Content-Length", "")
        gate = quota_gate(principal_of(request), name, int(length) if length.isdigit() else None)
        request._request.upload_gate = gate  # type: ignore[attr-defined]
        data = cast("dict[str, Any]", request.data)
        raise_upload_error(request._request.META)
        names = set(kind().fields) - {"file", "files", "paths", "evaluation"}
        form = kind(data={name: data.get(name) for name in names if name in data})
        form.is_valid(raise_exception=True)
        return dict(form.validated_data)

    def receive(self, request: Request, name: str, form: dict[str, Any]) -> Response:
        """201 with a new version, 200 with the one that has these bytes."""
        full_name, principal = parse_full_name(name), principal_of(request)
        team = principal.team(full_name.team, Scope.PUSH)
        paths = request.data.getlist("paths[]") if hasattr(request.data, "getlist") else []
        form["evaluation"] = take_evaluation(request.FILES)
        files = received_files(request.FILES, paths)
        check_received(team, files)
        received = receive_upload(team=team, name=full_name.adapter, files=files, actor=principal.user, **form)
        version = version_rows().get(pk=received.version.pk)
        return Response(
            VersionBody(version, context={"request": request}).data,
            status=201 if received.created else 200,
            headers={"Location": version_url(request, version)},
        )


class AdapterListView(UploadMixin, ListAPIView[Adapter]):
    """Adapters of your teams."""

    scopes = {"GET": Scope.READ, "POST": Scope.PUSH}
    serializer_class = AdapterBody
    pagination_class: type[CursorPagination] = LastChangedFirst

    def get_queryset(self) -> QuerySet[Adapter]:
        wanted = self.request.query_params
        return adapters_of(
            principal_of(self.request),
            search=wanted.get("search", ""),
            base_model=wanted.get("base_model", ""),
            kind=wanted.get("kind", ""),
            state=wanted.get("state", ""),
        )

    @extend_schema(parameters=FILTERS)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Search, filter and page through adapters, last changed first."""
        return super().get(request, *args, **kwargs)

    @extend_schema(request={"multipart/form-data": NewAdapterForm}, responses=UPLOADS)
    def post(self, request: Request) -> Response:
        """Upload a version; the adapter is made when it is new."""
        form = self.upload_form(request, NewAdapterForm)
        return self.receive(request, form.pop("name"), form)


class AdapterView(APIView):
    """One adapter."""

    scopes = READ_PUSH

    @extend_schema(responses={200: AdapterBody, **ERRORS})
    def get(self, request: Request, team: str, name: str) -> Response:
        """The adapter and where its aliases point."""
        return adapter_answer(request, team, name, scope=Scope.READ)

    @extend_schema(parameters=[OpenApiParameter("confirm", str)], responses={204: None, **CHANGES})
    def delete(self, request: Request, team: str, name: str) -> Response:
        """Delete it with all versions; `confirm` must be its full name. It can be restored for seven days."""
        principal = principal_of(request)
        adapter = get_adapter(principal, team, name, scope=Scope.PUSH)
        delete_adapter(adapter=adapter, confirm=request.query_params.get("confirm", ""), actor=principal.user)
        return Response(status=204)


class VersionListView(UploadMixin, ListAPIView[Version]):
    """Versions of one adapter."""

    scopes = {"GET": Scope.READ, "POST": Scope.PUSH}
    serializer_class = VersionBody
    pagination_class: type[CursorPagination] = HighestNumberFirst

    def get_queryset(self) -> QuerySet[Version]:
        if getattr(self, "swagger_fake_view", False):
            return Version.objects.none()
        adapter = get_adapter(principal_of(self.request), self.kwargs["team"], self.kwargs["name"])
        return versions_of(adapter, deleted=self.request.query_params.get("deleted") == "true")

    @extend_schema(parameters=[OpenApiParameter("deleted", bool, description="Those that can be restored.")])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Versions, highest number first."""
        return super().get(request, *args, **kwargs)

    @extend_schema(request={"multipart/form-data": UploadForm}, responses=UPLOADS)
    def post(self, request: Request, team: str, name: str) -> Response:
        """Upload the next version of an existing adapter."""
        form = self.upload_form(request, UploadForm, f"{team}/{name}")
        get_adapter(principal_of(request), team, name, scope=Scope.PUSH)
        return self.receive(request, f"{team}/{name}", form)


class VersionView(APIView):
    """One version."""

    scopes = READ_PUSH

    @extend_schema(responses={200: VersionBody, **ERRORS})
    def get(self, request: Request, team: str, name: str, number: int) -> Response:
        """State, report, mode, digest and files."""
        found = resolve_version(get_adapter(principal_of(request), team, name), number)
        context = {"request": request, "duplicate_upload": found.duplicate_upload}
        return Response(VersionBody(found.version, context=context).data)

    @extend_schema(responses={204: None, **CHANGES})
    def delete(self, request: Request, team: str, name: str, number: int) -> Response:
        """Take it out of service and off every list; it can be restored for seven days. Refused while an alias points
        at it, and for the number of a known content."""
        principal = principal_of(request)
        adapter = get_adapter(principal, team, name, scope=Scope.PUSH)
        delete_version(version=get_version(adapter, number), actor=principal.user)
        return Response(status=204)


class AnswerView(APIView):
    """The answer to a version in ``needs_input``."""

    scopes = {"POST": Scope.PUSH}

    @extend_schema(request=AnswerForm, responses={202: VersionBody, **CHANGES})
    def post(self, request: Request, team: str, name: str, number: int) -> Response:
        """Answer the question; the version is validated again."""
        principal = principal_of(request)
        version = get_version(get_adapter(principal, team, name, scope=Scope.PUSH), number)
        form = AnswerForm(data=request.data)
        form.is_valid(raise_exception=True)
        answer_question(version=version, actor=principal.user, **form.validated_data)
        return version_answer(request, version, status=202)


class AliasView(APIView):
    """One alias of an adapter."""

    scopes = READ_PUSH

    @extend_schema(request=AliasForm, responses={200: AdapterBody, **CHANGES})
    def put(self, request: Request, team: str, name: str, alias: str) -> Response:
        """Point it at a version or a split; 409 with the current value when `expect` is stale."""
        principal = principal_of(request)
        adapter = get_adapter(principal, team, name, scope=Scope.PUSH)
        form = AliasForm(data=request.data)
        form.is_valid(raise_exception=True)
        move_alias(
            adapter=adapter,
            alias=alias,
            split=read_split(form.validated_data),
            expect=read_expect(form.validated_data),
            confirm=form.validated_data["confirm"],
            actor=principal.user,
        )
        return adapter_answer(request, team, name)

    @extend_schema(responses={204: None, **CHANGES})
    def delete(self, request: Request, team: str, name: str, alias: str) -> Response:
        """Remove an alias other than live."""
        principal = principal_of(request)
        adapter = get_adapter(principal, team, name, scope=Scope.PUSH)
        remove_alias(adapter=adapter, alias=alias, actor=principal.user)
        return Response(status=204)


class RollbackView(APIView):
    """Back to the last version that served."""

    scopes = {"POST": Scope.PUSH}

    @extend_schema(request=RollbackForm, responses={200: AdapterBody, **CHANGES})
    def post(self, request: Request, team: str, name: str) -> Response:
        """Move `live` (or another alias) back to what it served before."""
        principal = principal_of(request)
        adapter = get_adapter(principal, team, name, scope=Scope.PUSH)
        form = RollbackForm(data=request.data)
        form.is_valid(raise_exception=True)
        rollback(adapter=adapter, alias=form.validated_data["alias"], actor=principal.user)
        return adapter_answer(request, team, name)
