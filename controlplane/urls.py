"""Every HTTP address of the control plane."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView

from controlplane.health import healthz, readyz

handler400 = "controlplane.api.errors.bad_request"
handler403 = "controlplane.api.errors.forbidden"
handler404 = "controlplane.api.errors.not_found"
handler500 = "controlplane.api.errors.server_error"

api_v1 = [
    path("", include("controlplane.accounts.api.urls")),
    path("", include("controlplane.events.api.urls")),
    path("", include("loras.api.urls")),
    path("", include("fleet.api.urls")),
]

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("admin/", admin.site.urls),
    path("api/schema/", SpectacularAPIView.as_view(), name="schema"),
    path("api/docs/", SpectacularSwaggerView.as_view(url_name="schema"), name="docs"),
    path("api/v1/", include(api_v1)),
    path("", include("controlplane.accounts.urls")),
    path("", include("fleet.urls")),
    path("", include("loras.urls")),
]
