"""Every WebSocket address of the control plane."""

from __future__ import annotations

from django.urls import URLPattern, path

from controlplane.events.consumers import EventsConsumer
from fleet.consumers import FleetConsumer
from loras.consumers import AdapterConsumer

websocket_urlpatterns: list[URLPattern] = [
    path("ws/adapters/<str:team>/<str:name>/", AdapterConsumer.as_asgi()),
    path("ws/events/", EventsConsumer.as_asgi()),
    path("ws/fleet/", FleetConsumer.as_asgi()),
]
