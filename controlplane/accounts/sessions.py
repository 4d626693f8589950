"""The person behind a socket's session, read from the store each time: a socket lives for days."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import User
from django.http import HttpRequest


def session_user(scope: Mapping[str, Any]) -> User | None:
    """Who is signed in now; ``None`` after a sign-out and for a disabled account."""
    session_key = getattr(scope.get("session"), "session_key", None)
    if session_key is None:
        return None
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    user = get_user(request)
    return user if isinstance(user, User) and user.is_active else None
