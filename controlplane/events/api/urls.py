"""REST addresses of events."""

from __future__ import annotations

from django.urls import path

from controlplane.events.api.views import EventListView

urlpatterns = [path("events/", EventListView.as_view(), name="api-events")]
