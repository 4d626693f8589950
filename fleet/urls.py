"""Pages of the fleet."""

from __future__ import annotations

from django.urls import URLPattern, path

from fleet import views

urlpatterns: list[URLPattern] = [
    path("fleet/", views.fleet, name="fleet"),
    path("fleet/<str:key>/", views.worker_detail, name="worker_detail"),
    path("fleet/<str:key>/drain/", views.drain, name="worker_drain"),
    path("fleet/<str:key>/resume/", views.resume, name="worker_resume"),
]
