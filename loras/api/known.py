"""REST views of known content and of quotas: what a client asks before it sends."""

from __future__ import annotations

from dataclasses import asdict

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.accounts.api.permissions import principal_of
from controlplane.accounts.models import Team
from controlplane.api.schema import ErrorBody
from loras.api.upload_requests import pushable
from loras.api.upload_serializers import KnownBody, KnownForm, QuotaBody
from loras.models import Version
from loras.uploads.known import SHA256, AnnouncedFile, is_stored, known_versions, same_upload
from loras.uploads.quotas import limits_and_use
from wire.errors import Code, ShoalError
from wire.names import parse_full_name
from wire.registry import Scope

ERRORS = {400: ErrorBody, 401: ErrorBody, 403: ErrorBody, 404: ErrorBody}


class KnownView(APIView):
    """Content that needs no sending."""

    scopes = {"GET": Scope.PUSH, "POST": Scope.PUSH}

    @extend_schema(
        parameters=[OpenApiParameter("sha256", str, required=True)],
        responses={200: KnownBody, **ERRORS},
        operation_id="uploads_known_get",
    )
    def get(self, request: Request) -> Response:
        """Versions of your teams that were uploaded with a file of this SHA-256."""
        sha256 = request.query_params.get("sha256", "").lower()
        if not SHA256.match(sha256):
            raise ShoalError(Code.INVALID_REQUEST, f"{sha256[:80]!r} is no SHA-256 in hex.", param="sha256")
        versions = known_versions(pushable(principal_of(request)), sha256)
        return self._answer(request, versions, [sha256] if versions else [])

    @extend_schema(request=KnownForm, responses={200: KnownBody, **ERRORS})
    def post(self, request: Request) -> Response:
        """Versions of your teams that consist of exactly these files, and those of the files that need not be sent."""
        form = KnownForm(data=request.data)
        form.is_valid(raise_exception=True)
        principal, name = principal_of(request), form.validated_data["name"]
        files = [AnnouncedFile(**file) for file in form.validated_data["files"]]
        teams = pushable(principal)
        if name:
            teams = [principal.team(parse_full_name(name).team, Scope.PUSH).pk]
        team = Team.objects.filter(pk__in=teams).first() if len(teams) == 1 else None
        stored = [file.sha256 for file in files if team is not None and is_stored(team, file.sha256, file.size_bytes)]
        return self._answer(request, same_upload(teams, files, name=name), stored)

    def _answer(self, request: Request, versions: list[Version], stored: list[str]) -> Response:
        return Response(KnownBody({"versions": versions, "stored": stored}, context={"request": request}).data)


class QuotaView(APIView):
    """Limits of your teams."""

    scopes = {"GET": Scope.READ}

    @extend_schema(responses={200: QuotaBody(many=True), **ERRORS})
    def get(self, request: Request) -> Response:
        """Limits and use of each of your teams."""
        rows = []
        for team in Team.objects.filter(pk__in=principal_of(request).team_ids).order_by("name"):
            limits, use = limits_and_use(team)
            rows.append({"team": team.name, "limits": asdict(limits), "used": asdict(use)})
        return Response(QuotaBody(rows, many=True).data)
