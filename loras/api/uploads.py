"""REST views of resumable uploads: tus 1.0 (https://tus.io/protocols/resumable-upload) and its completion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils.http import http_date
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.parsers import BaseParser
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.accounts.api.permissions import HasScope, principal_of
from controlplane.api.parsers import StrictJSONParser
from controlplane.api.schema import ErrorBody
from loras.api.serializers import VersionBody, version_url
from loras.api.upload_requests import (
    announced_bytes,
    body_reader,
    carries_bytes,
    drain_body,
    get_upload,
    name_of,
    pushable,
    read_length,
    read_wanted,
    read_wishes,
    said_by,
)
from loras.api.upload_serializers import CompleteForm, NewUploadBody, UploadBody, upload_url
from loras.models import Upload
from loras.queries import version_rows
from loras.uploads import tus
from loras.uploads.services import (
    append_chunk,
    begin_upload,
    cancel_upload,
    complete_upload,
    offset_of,
    refuse_expired,
)
from loras.uploads.sweep import expires_at
from wire.errors import Code, ShoalError
from wire.registry import Scope

ERRORS = {400: ErrorBody, 401: ErrorBody, 403: ErrorBody, 404: ErrorBody, 412: ErrorBody}
CHUNKS = {**ERRORS, 409: ErrorBody, 410: ErrorBody, 413: ErrorBody, 423: ErrorBody, 460: ErrorBody, 507: ErrorBody}
BYTES = {tus.CHUNK_TYPE: OpenApiTypes.BINARY}


def header(name: str, kind: Any = str, *, required: bool = False) -> OpenApiParameter:
    """A header of the schema."""
    return OpenApiParameter(name, kind, OpenApiParameter.HEADER, required=required)


RESUMABLE = header("Tus-Resumable")


class TusView(APIView):
    """What every address of the protocol answers with."""

    def get_parsers(self) -> list[BaseParser]:
        return [StrictJSONParser()]

    def get_permissions(self) -> list[BasePermission]:
        # what the server speaks is told to anybody, as the protocol has it
        return [] if self.request.method == "OPTIONS" else [HasScope()]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if request.method != "OPTIONS":
            tus.check_version(request.headers.get("Tus-Resumable"))
        super().initial(request, *args, **kwargs)

    def options(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Response:
        """What this server speaks."""
        return Response(
            status=204,
            headers={
                "Tus-Version": tus.VERSION,
                "Tus-Extension": tus.EXTENSIONS,
                "Tus-Max-Size": str(settings.SHOAL.upload_max_bytes),
                "Tus-Checksum-Algorithm": ",".join(tus.ALGORITHMS),
            },
        )

    def handle_exception(self, exc: Exception) -> Response:
        response = super().handle_exception(exc)
        if isinstance(exc, ShoalError):
            if "offset" in exc.detail:
                response.headers["Upload-Offset"] = str(exc.detail["offset"])
            if exc.code is Code.PROTOCOL_VERSION:
                response.headers["Tus-Version"] = tus.VERSION
        drain_body(self.request)
        return response

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        response.headers["Tus-Resumable"] = tus.VERSION
        response.headers.setdefault("Cache-Control", "no-store")
        return super().finalize_response(request, response, *args, **kwargs)


class UploadListView(TusView, ListAPIView[Upload]):
    """Unfinished uploads."""

    scopes = {"GET": Scope.PUSH, "POST": Scope.PUSH}
    serializer_class = UploadBody

    def get_queryset(self) -> Any:
        if getattr(self, "swagger_fake_view", False):
            return Upload.objects.none()
        teams = pushable(principal_of(self.request))
        return Upload.objects.filter(team_id__in=teams, state=Upload.State.OPEN).select_related("team")

    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Unfinished uploads of your teams, newest first."""
        return super().get(request, *args, **kwargs)

    @extend_schema(
        parameters=[
            RESUMABLE,
            header("Upload-Length", int, required=True),
            header("Upload-Metadata"),
            header("Upload-Checksum"),
        ],
        request=BYTES,
        responses={201: NewUploadBody, **CHUNKS},
    )
    def post(self, request: Request) -> Response:
        """Begin an upload of one file, with its first bytes when there is a body.

        `Upload-Metadata` pairs: `filename` (its relative path), `name` (team/adapter), `sha256`, `package_bytes` (all
        files of the version together), `role` (`evaluation` for the rows to evaluate it with), and for the completion
        `promote`, `message`, `base_model`, `kind`. Quotas are answered here, before the bytes travel.
        """
        checksum = tus.read_checksum(request.headers.get("Upload-Checksum"))
        if "Upload-Defer-Length" in request.headers:
            raise ShoalError(Code.INVALID_REQUEST, "The length must be known.", param="Upload-Defer-Length")
        wanted = read_wanted(principal_of(request), request.headers.get("Upload-Metadata"), read_length(request))
        begun = begin_upload(
            team=wanted.team,
            adapter=wanted.adapter,
            path=wanted.path,
            size_bytes=read_length(request),
            package_bytes=wanted.package_bytes,
            sha256=wanted.sha256,
            role=wanted.role,
            metadata=wanted.metadata,
            actor=principal_of(request).user,
        )
        upload = begun.upload
        if carries_bytes(request) and not upload.stored:
            # a broken connection leaves the upload and what has arrived of it
            append_chunk(
                upload=upload,
                offset=0,
                read=body_reader(request),
                announced=announced_bytes(request),
                checksum=checksum,
            )
        else:
            drain_body(request)
        upload.known = begun.known  # type: ignore[attr-defined]
        body = NewUploadBody(upload, context={"request": request}).data
        return Response(body, status=201, headers={"Location": upload_url(request, upload), **_state_headers(upload)})


class UploadView(TusView):
    """One upload."""

    scopes = {"GET": Scope.PUSH, "POST": Scope.PUSH, "PATCH": Scope.PUSH, "DELETE": Scope.PUSH}

    @extend_schema(responses={200: UploadBody, **ERRORS})
    def get(self, request: Request, upload_id: str) -> Response:
        """Its state as JSON; `HEAD` gives the same as headers."""
        upload = get_upload(principal_of(request), upload_id)
        return Response(UploadBody(upload, context={"request": request}).data, headers=_state_headers(upload))

    @extend_schema(exclude=True)
    def head(self, request: Request, upload_id: str) -> Response:
        """Where to go on."""
        upload = get_upload(principal_of(request), upload_id)
        headers = _state_headers(upload)
        if upload.metadata:
            headers["Upload-Metadata"] = tus.write_metadata(upload.metadata)
        return Response(status=200, headers=headers)

    @extend_schema(
        parameters=[RESUMABLE, header("Upload-Offset", int, required=True), header("Upload-Checksum")],
        request=BYTES,
        responses={204: None, **CHUNKS},
    )
    def patch(self, request: Request, upload_id: str) -> Response:
        """Append a chunk at `Upload-Offset`; 409 with the right offset when it is another, 423 while another request
        writes, 460 when the chunk does not have its `Upload-Checksum`: it is not kept then."""
        if not carries_bytes(request):
            raise ShoalError(
                Code.INVALID_REQUEST, f"A chunk has the content type {tus.CHUNK_TYPE}.", param="Content-Type"
            )
        offset = tus.read_count("Upload-Offset", request.headers.get("Upload-Offset"))
        checksum = tus.read_checksum(request.headers.get("Upload-Checksum"))
        upload = get_upload(principal_of(request), upload_id)
        append_chunk(
            upload=upload,
            offset=offset,
            read=body_reader(request),
            announced=announced_bytes(request),
            checksum=checksum,
        )
        return Response(status=204, headers=_state_headers(upload))

    @extend_schema(parameters=[RESUMABLE], responses={204: None, **ERRORS, 423: ErrorBody})
    def delete(self, request: Request, upload_id: str) -> Response:
        """End it and delete its bytes."""
        cancel_upload(upload=get_upload(principal_of(request), upload_id))
        return Response(status=204)

    @extend_schema(exclude=True)
    def post(self, request: Request, upload_id: str) -> Response:
        """For clients behind proxies that let only POST through: the method is in ``X-HTTP-Method-Override``."""
        ways: dict[str, Callable[[Request, str], Response]] = {
            "PATCH": self.patch, "DELETE": self.delete, "HEAD": self.head,
        }  # fmt: skip
        way = ways.get(request.headers.get("X-HTTP-Method-Override", "").upper())
        if way is None:
            raise ShoalError(
                Code.METHOD_NOT_ALLOWED,
                "An upload takes HEAD, GET, PATCH and DELETE.",
                hint="POST uploads/{id}/complete/ makes a version of it.",
            )
        return way(request, upload_id)


class CompleteView(TusView):
    """The end of an upload."""

    scopes = {"POST": Scope.PUSH}

    @extend_schema(
        request=CompleteForm,
        responses={200: VersionBody, 201: VersionBody, **CHUNKS},
    )
    def post(self, request: Request, upload_id: str) -> Response:
        """Make a version of this upload and of those named in `uploads`: 201 with a new one, 200 with the one that has
        these bytes. May be repeated."""
        principal = principal_of(request)
        form = CompleteForm(data=request.data)
        form.is_valid(raise_exception=True)
        first = get_upload(principal, upload_id)
        others = [get_upload(principal, pk) for pk in dict.fromkeys(form.validated_data["uploads"]) if pk != first.pk]
        uploads = [first, *others]
        for upload in uploads:
            refuse_expired(upload)
        name = name_of(form.validated_data.get("name", ""), uploads)
        team = principal.team(name.team, Scope.PUSH)
        if any(upload.team_id != team.pk for upload in uploads):
            raise ShoalError(Code.CONFLICT, f"The uploads were begun for another team than {team.name}.", param="name")
        received = complete_upload(
            uploads=uploads,
            team=team,
            name=name.adapter,
            actor=principal.user,
            wishes=read_wishes({**said_by(uploads), **dict(request.data)}),
        )
        version = version_rows().get(pk=received.version.pk)
        return Response(
            VersionBody(version, context={"request": request}).data,
            status=201 if received.created else 200,
            headers={"Location": version_url(request, version)},
        )


def _state_headers(upload: Upload) -> dict[str, str]:
    return {
        "Upload-Offset": str(offset_of(upload)),
        "Upload-Length": str(upload.size_bytes),
        "Upload-Expires": http_date(expires_at(upload).timestamp()),
    }
