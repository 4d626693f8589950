"""Answers that several views of adapters and versions give."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.accounts.api.permissions import principal_of
from controlplane.api.schema import ErrorBody
from loras.api.serializers import AdapterBody, VersionBody
from loras.models import Version
from loras.queries import get_adapter, version_rows
from wire.registry import Scope

ERRORS = {400: ErrorBody, 401: ErrorBody, 403: ErrorBody, 404: ErrorBody}
CHANGES = {**ERRORS, 409: ErrorBody}


def adapter_answer(request: Request, team: str, name: str, *, scope: Scope = Scope.PUSH) -> Response:
    """The adapter as it is now, after a change or for a reader."""
    adapter = get_adapter(principal_of(request), team, name, scope=scope)
    return Response(AdapterBody(adapter, context={"request": request}).data)


def version_answer(request: Request, version: Version, *, status: int = 200) -> Response:
    """The version as it is now."""
    body = VersionBody(version_rows().get(pk=version.pk), context={"request": request})
    return Response(body.data, status=status)
