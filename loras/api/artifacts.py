"""``artifacts/{sha256}/``: canonical artifacts for machines, with ranges."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import BinaryIO

from asgiref.sync import sync_to_async
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.api.schema import ErrorBody
from loras.models import Artifact
from loras.queries import canonical_exists
from loras.storage import MissingContent, artifact_store
from wire.errors import Code, ShoalError
from wire.registry import Scope

CHUNK_BYTES = 1024 * 1024
_RANGE = re.compile(r"bytes=(\d*)-(\d*)\Z")


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes ``first`` to ``last``, both included."""

    first: int
    last: int

    @property
    def length(self) -> int:
        return self.last - self.first + 1


class ArtifactView(APIView):
    """The file that workers load. Any machine key may read it: a machine serves every team."""

    scopes = {"GET": Scope.MACHINE}

    @extend_schema(
        parameters=[OpenApiParameter("Range", str, OpenApiParameter.HEADER)],
        responses={
            (200, "application/octet-stream"): OpenApiTypes.BINARY,
            (206, "application/octet-stream"): OpenApiTypes.BINARY,
            404: ErrorBody,
        },
    )
    def get(self, request: Request, sha256: str) -> HttpResponseBase | Response:
        """The content, or one range of it (RFC 9110, section 14)."""
        artifact = Artifact.objects.filter(sha256=sha256).first() if canonical_exists(sha256) else None
        if artifact is None:
            raise ShoalError(Code.NOT_FOUND, f"There is no artifact {sha256[:64]}.")
        headers = {
            "ETag": f'"{sha256}"',
            "Accept-Ranges": "bytes",
            "Cache-Control": "private, immutable, max-age=31536000",
        }
        if headers["ETag"] in request.headers.get("If-None-Match", ""):
            return HttpResponse(status=304, headers=headers)
        wanted = requested_range(request.headers.get("Range", ""), artifact.size_bytes)
        if request.headers.get("If-Range", headers["ETag"]) != headers["ETag"]:
            wanted = None
        if wanted is not None and wanted.length <= 0:
            return HttpResponse(status=416, headers={**headers, "Content-Range": f"bytes */{artifact.size_bytes}"})
        part = wanted or ByteRange(0, artifact.size_bytes - 1)
        headers["Content-Length"] = str(part.length)
        if wanted is not None:
            headers["Content-Range"] = f"bytes {part.first}-{part.last}/{artifact.size_bytes}"
        return StreamingHttpResponse(
            _chunks(_opened(sha256), part),
            status=206 if wanted is not None else 200,
            content_type="application/octet-stream",
            headers=headers,
        )


def requested_range(header: str, size_bytes: int) -> ByteRange | None:
    """The one range of ``header``; ``None`` for all of it (no range, several, or another unit). A range that lies
    outside has a length of 0 or less."""
    match = _RANGE.match(header.strip())
    if match is None or not any(match.groups()):
        return None
    first, last = match.groups()
    if not first:
        return ByteRange(max(0, size_bytes - int(last)), size_bytes - 1) if int(last) else ByteRange(0, -1)
    if int(first) >= size_bytes:
        return ByteRange(0, -1)
    if last and int(last) < int(first):
        return None
    return ByteRange(int(first), min(int(last or size_bytes), size_bytes - 1))


def _opened(sha256: str) -> BinaryIO:
    try:
        return artifact_store().open(sha256)
    except MissingContent:
        raise ShoalError(
            Code.ARTIFACT_UNAVAILABLE, f"The content of {sha256[:12]} is not in the store.", hint="Upload it again."
        ) from None


async def _chunks(stream: BinaryIO, part: ByteRange) -> AsyncIterator[bytes]:
    """Read in threads, one chunk in memory at a time: Django would read a plain iterator whole under ASGI."""
    try:
        await sync_to_async(stream.seek, thread_sensitive=False)(part.first)
        left = part.length
        while left > 0:
            chunk = await sync_to_async(stream.read, thread_sensitive=False)(min(CHUNK_BYTES, left))
            if not chunk:
                return
            left -= len(chunk)
            yield chunk
    finally:
        stream.close()
