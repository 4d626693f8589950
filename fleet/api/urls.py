"""Addresses below ``/api/v1/``."""

from __future__ import annotations

from django.urls import URLPattern, path

from fleet.api import views
from fleet.api.dead_jobs import DeadJobsView, ReplayView

urlpatterns: list[URLPattern] = [
    path("base-models/", views.BaseModelsView.as_view(), name="api_base_models"),
    path("pools/", views.PoolsView.as_view(), name="api_pools"),
    path("dead-jobs/", DeadJobsView.as_view(), name="api_dead_jobs"),
    path("dead-jobs/<int:sequence>/replay/", ReplayView.as_view(), name="api_dead_job_replay"),
    path("workers/", views.WorkersView.as_view(), name="api_workers"),
    path("workers/<str:key>/", views.WorkerView.as_view(), name="api_worker"),
    path("workers/<str:key>/minutes/", views.MinutesView.as_view(), name="api_worker_minutes"),
    path("workers/<str:key>/drain/", views.DrainView.as_view(), name="api_worker_drain"),
    path("workers/<str:key>/resume/", views.ResumeView.as_view(), name="api_worker_resume"),
    path("workers/<str:key>/pin/", views.PinView.as_view(), name="api_worker_pin"),
    path("workers/<str:key>/evict/", views.EvictView.as_view(), name="api_worker_evict"),
]
