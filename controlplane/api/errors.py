"""The one place where the control plane turns exceptions into error bodies.

``{"error": {"message", "type", "code", "param", "hint"}}``, and what an error adds as ``detail``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation, TooManyFilesSent
from django.db import OperationalError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, UnreadablePostError
from django.views import defaults
from rest_framework import exceptions
from rest_framework.response import Response

from wire.errors import Code, ErrorInfo, ShoalError

log = structlog.get_logger("controlplane.api")

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 409: "conflict_error",
          429: "rate_limit_error"}  # fmt: skip


def error_body(info: ErrorInfo, *, status: int | None = None) -> dict[str, Any]:
    """The JSON body of one error. ``type`` groups by what the caller can do, as OpenAI's clients expect it."""
    shown = status or info.status
    kind = _TYPES.get(shown, "server_error" if shown >= 500 else "invalid_request_error")
    return {
        "error": {
            "message": info.message,
            "type": kind,
            "code": info.code.value,
            "param": info.param,
            "hint": info.hint,
        }
    }


def answer_error(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """REST framework's exception handler. ``None`` (a bug, answered as 500) for what nobody foresaw."""
    info, status = _described(error)
    if info is None:
        return None
    body = error_body(info, status=status)
    if isinstance(error, ShoalError) and error.detail:
        body["error"].update(error.detail)
    response = Response(body, status=status)
    if status == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="shoal"'
    if isinstance(error, exceptions.MethodNotAllowed):
        allowed = getattr(context.get("view"), "allowed_methods", [])
        response.headers["Allow"] = ", ".join(allowed)
    return response


def _described(error: Exception) -> tuple[ErrorInfo | None, int]:
    """What to say about ``error`` and with which status."""
    match error:
        case ShoalError():
            return error.info, error.status
        case exceptions.ValidationError():
            param, text = _first_problem(error.detail)
            return ErrorInfo(Code.INVALID_REQUEST, text, param=param), 400
        case exceptions.ParseError():
            return ErrorInfo(Code.INVALID_JSON, str(error.detail), hint="Send one JSON object."), 400
        case exceptions.NotAuthenticated() | exceptions.AuthenticationFailed():
            return ErrorInfo(Code.UNAUTHENTICATED, str(error.detail), hint=_KEY_HINT), 401
        case exceptions.PermissionDenied() | PermissionDenied():
            return ErrorInfo(Code.FORBIDDEN, str(error) or "This is not allowed for you."), 403
        case exceptions.NotFound() | Http404():
            return ErrorInfo(Code.NOT_FOUND, "There is nothing at this address."), 404
        case exceptions.MethodNotAllowed():
            return ErrorInfo(Code.METHOD_NOT_ALLOWED, str(error.detail)), 405
        case exceptions.APIException():
            return ErrorInfo(Code.INVALID_REQUEST, str(error.detail)), error.status_code
        case TooManyFilesSent() | SuspiciousOperation():
            status = 413 if isinstance(error, RequestDataTooBig) else 400
            return ErrorInfo(Code.UPLOAD_INVALID, str(error) or "The request is not acceptable."), status
        case UnreadablePostError():
            return ErrorInfo(Code.UPLOAD_INVALID, "The connection ended before the body did."), 400
        case OperationalError():
            log.error("database.unavailable", error=str(error)[:200])
            return ErrorInfo(Code.INTERNAL, "The database did not answer in time.", hint="Try again."), 503
        case _:
            return None, 500


_KEY_HINT = "Send `Authorization: Bearer shoal_…` with a key of the page /keys/."


def _first_problem(detail: Any, path: str = "") -> tuple[str | None, str]:
    """The first field in a serializer's errors, dotted, and what is wrong with it."""
    if isinstance(detail, Mapping):
        name, inner = next(iter(detail.items()))
        step = "" if name == "non_field_errors" else str(name)
        return _first_problem(inner, f"{path}.{step}".strip("."))
    if isinstance(detail, list):
        index = next((at for at, inner in enumerate(detail) if inner), 0)
        inner = detail[index]
        return _first_problem(inner, f"{path}.{index}" if isinstance(inner, (dict, list)) else path)
    return path or None, f"{path}: {detail}" if path else str(detail)


def is_api(request: HttpRequest) -> bool:
    """Whether this request is answered in JSON."""
    return request.path.startswith("/api/")


def _json(code: Code, message: str, status: int) -> HttpResponse:
    return JsonResponse(error_body(ErrorInfo(code, message), status=status), status=status)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Django's 400 outside REST views."""
    if is_api(request):
        return _json(Code.INVALID_REQUEST, "The request is not acceptable.", 400)
    return defaults.bad_request(request, exception)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Django's 403 outside REST views."""
    if is_api(request):
        return _json(Code.FORBIDDEN, "This is not allowed for you.", 403)
    return defaults.permission_denied(request, exception)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Django's 404."""
    if is_api(request):
        return _json(Code.NOT_FOUND, f"There is nothing at {request.path[:200]}.", 404)
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponseBase:
    """Django's 500: the request id leads to the traceback in the log."""
    if is_api(request):
        request_id = request.META.get("SHOAL_REQUEST_ID", "")
        return _json(Code.INTERNAL, f"Something went wrong here; the log has it under request {request_id}.", 500)
    return defaults.server_error(request)
