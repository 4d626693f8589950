"""Pages of adapters."""

from __future__ import annotations

from django.urls import path

from loras import (
    alias_views,
    event_views,
    find_views,
    lifecycle_views,
    metrics_views,
    playground_views,
    upload_views,
    views,
)

_ADAPTER = "adapters/<str:team>/<str:name>/"

urlpatterns = [
    path("", views.home, name="home"),
    path("upload/", upload_views.upload, name="upload"),
    path("adapters/", views.adapter_list, name="adapter_list"),
    path("adapters.csv", views.adapter_csv, name="adapter_csv"),
    path(_ADAPTER, views.adapter_detail, name="adapter_detail"),
    path(f"{_ADAPTER}versions/", views.adapter_versions, name="adapter_versions"),
    path(f"{_ADAPTER}files/", views.adapter_files, name="adapter_files"),
    path(f"{_ADAPTER}report/", views.adapter_report, name="adapter_report"),
    path(f"{_ADAPTER}events/", views.adapter_events, name="adapter_events"),
    path(f"{_ADAPTER}playground/", playground_views.playground, name="adapter_playground"),
    path(f"{_ADAPTER}metrics/", metrics_views.adapter_metrics, name="adapter_metrics"),
    path(f"{_ADAPTER}compare/", lifecycle_views.compare, name="compare_versions"),
    path(f"{_ADAPTER}versions/<int:number>/evaluate/", lifecycle_views.evaluate, name="evaluate_version"),
    path(f"{_ADAPTER}delete/", lifecycle_views.delete, name="delete_adapter"),
    path(f"{_ADAPTER}restore/", lifecycle_views.restore, name="restore_adapter"),
    path(f"{_ADAPTER}aliases/<str:alias>/resume/", lifecycle_views.resume, name="resume_canary"),
    *(
        path(
            f"{_ADAPTER}versions/<int:number>/{verb}/",
            lifecycle_views.act_on_version,
            {"verb": verb},
            name=f"{verb}_version",
        )
        for verb in lifecycle_views.ACTS
    ),
    path("find/", find_views.find, name="find"),
    path("events/", event_views.feed, name="events"),
    path("deleted/", lifecycle_views.deleted, name="deleted_adapters"),
    path(f"{_ADAPTER}move/", alias_views.move, name="move_alias"),
    path(f"{_ADAPTER}rollback/", alias_views.roll_back, name="rollback"),
    path(f"{_ADAPTER}versions/<int:number>/verdict/", upload_views.version_verdict, name="version_verdict"),
    path(f"{_ADAPTER}versions/<int:number>/answer/", upload_views.answer, name="answer_question"),
]
