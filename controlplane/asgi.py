"""ASGI entry point: HTTP to Django behind the upload guard, WebSockets to Channels."""

from __future__ import annotations

import os

from controlplane.streamed_body import streaming_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
django_application = streaming_application()

# models may be imported only after streaming_application() has loaded the apps
from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402

from controlplane.body_limit import BodyLimit  # noqa: E402
from controlplane.origins import SitePagesAndPrograms  # noqa: E402
from controlplane.routing import websocket_urlpatterns  # noqa: E402

application = ProtocolTypeRouter(
    {
        "http": BodyLimit(django_application),
        "websocket": SitePagesAndPrograms(AuthMiddlewareStack(URLRouter(websocket_urlpatterns))),
    }
)
