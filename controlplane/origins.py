"""Who may open a WebSocket: pages of this site, and programs, which send no ``Origin``."""

from __future__ import annotations

from typing import Any

from channels.security.websocket import OriginValidator
from django.conf import settings


class SitePagesAndPrograms(OriginValidator):  # type: ignore[misc]  # channels has no types
    """Refuses pages of other sites, whose browsers would send this site's cookies along.

    Browsers name the origin of every WebSocket, so a handshake without one comes from a program with an API key.
    """

    def __init__(self, application: Any) -> None:
        super().__init__(application, settings.ALLOWED_HOSTS)

    def valid_origin(self, parsed_origin: Any) -> bool:
        return parsed_origin is None or bool(super().valid_origin(parsed_origin))
