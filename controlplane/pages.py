"""What every HTML view shares: sign-in, who asks, and how a refusal is shown."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.accounts.principal import Principal, principal_of_user
from wire.errors import Code, ShoalError

P = ParamSpec("P")

_NOT_THERE = frozenset({Code.NOT_FOUND, Code.VERSION_NOT_FOUND, Code.ALIAS_NOT_FOUND, Code.MODEL_NOT_FOUND})


def page(
    view: Callable[Concatenate[HttpRequest, Principal, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """A view for signed-in people that also gets their principal.

    ``ShoalError`` becomes 404 where something does not exist for them, 403 where they may not, and otherwise a
    message on the page the form came from (the same address by GET).
    """

    @wraps(view)
    def answer(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        try:
            return view(request, principal_of_user(request.user), *args, **kwargs)
        except ShoalError as error:
            if error.code is Code.FORBIDDEN:
                raise PermissionDenied(str(error)) from error
            if error.code in _NOT_THERE or request.method != "POST":
                raise Http404(str(error)) from error
            messages.error(request, refusal_text(error))
            return redirect(request.get_full_path())

    return login_required(answer)


def refusal_text(error: ShoalError) -> str:
    """What was refused and what to do, as one line for a person."""
    return f"{error.info.message} {error.info.hint or ''}".strip()


def web_url(request: HttpRequest) -> str:
    """Public address of this site for snippets: the configured one, else where the reader found it."""
    configured: str = settings.SHOAL.web_url
    return configured.rstrip("/") or request.build_absolute_uri("/").rstrip("/")


def gateway_url() -> str:
    """Public address of the gateway for snippets."""
    url: str = settings.SHOAL.public_gateway_url
    return url
