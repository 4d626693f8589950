"""Pages of the fleet."""

from __future__ import annotations

from django.urls import URLPattern, path

from fleet import dead_job_views, system_views, views

urlpatterns: list[URLPattern] = [
    path("fleet/", views.fleet, name="fleet"),
    path("dead-jobs/", dead_job_views.dead_jobs, name="dead_jobs"),
    path("dead-jobs/<int:sequence>/replay/", dead_job_views.replay, name="replay_dead_job"),
    path("system/", system_views.system, name="system"),
    path("fleet/<str:key>/", views.worker_detail, name="worker_detail"),
    *(
        path(
            f"fleet/<str:key>/residents/<str:digest>/{verb}/",
            views.act_on_resident,
            {"verb": verb},
            name=f"{verb}_resident",
        )
        for verb in ("pin", "unpin", "evict")
    ),
    path("fleet/<str:key>/drain/", views.drain, name="worker_drain"),
    path("fleet/<str:key>/resume/", views.resume, name="worker_resume"),
]
