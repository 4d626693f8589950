"""Every WebSocket address of the control plane."""

from __future__ import annotations

from django.urls import URLPattern, path

from loras.consumers import AdapterConsumer

websocket_urlpatterns: list[URLPattern] = [
    path("ws/adapters/<str:team>/<str:name>/", AdapterConsumer.as_asgi()),
]

try:
    from fleet.consumers import FleetConsumer
except ModuleNotFoundError as error:
    if error.name != "fleet.consumers":
        raise
else:
    websocket_urlpatterns.append(path("ws/fleet/", FleetConsumer.as_asgi()))
