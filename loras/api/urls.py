"""REST addresses of adapters, versions and artifacts."""

from __future__ import annotations

from django.urls import path

from loras.api import lifecycle, views
from loras.api.artifacts import ArtifactView
from loras.api.evaluations import EvaluationListView
from loras.api.known import KnownView, QuotaView
from loras.api.metrics import MetricsView
from loras.api.uploads import CompleteView, UploadListView, UploadView

ADAPTER = "adapters/<str:team>/<str:name>/"

urlpatterns = [
    path("adapters/", views.AdapterListView.as_view(), name="api-adapters"),
    path(ADAPTER, views.AdapterView.as_view(), name="api-adapter"),
    path(f"{ADAPTER}versions/", views.VersionListView.as_view(), name="api-versions"),
    path(f"{ADAPTER}versions/<int:number>/", views.VersionView.as_view(), name="api-version"),
    path(f"{ADAPTER}versions/<int:number>/answer/", views.AnswerView.as_view(), name="api-answer"),
    path(f"{ADAPTER}aliases/<str:alias>/", views.AliasView.as_view(), name="api-alias"),
    path(f"{ADAPTER}aliases/<str:alias>/resume/", lifecycle.ResumeView.as_view(), name="api-resume"),
    path(f"{ADAPTER}versions/<int:number>/retire/", lifecycle.RetireView.as_view(), name="api-retire"),
    path(
        f"{ADAPTER}versions/<int:number>/restore/", lifecycle.RestoreVersionView.as_view(), name="api-restore-version"
    ),
    path(f"{ADAPTER}versions/<int:number>/compare/", lifecycle.CompareView.as_view(), name="api-compare"),
    path(f"{ADAPTER}versions/<int:number>/evaluations/", EvaluationListView.as_view(), name="api-evaluations"),
    path(f"{ADAPTER}restore/", lifecycle.RestoreAdapterView.as_view(), name="api-restore-adapter"),
    path(f"{ADAPTER}metrics/", MetricsView.as_view(), name="api-metrics"),
    path("deleted-adapters/", lifecycle.DeletedListView.as_view(), name="api-deleted-adapters"),
    path(f"{ADAPTER}rollback/", views.RollbackView.as_view(), name="api-rollback"),
    path("uploads/", UploadListView.as_view(), name="api-uploads"),
    path("uploads/known/", KnownView.as_view(), name="api-known"),
    path("uploads/<str:upload_id>/", UploadView.as_view(), name="api-upload"),
    path("uploads/<str:upload_id>/complete/", CompleteView.as_view(), name="api-upload-complete"),
    path("quotas/", QuotaView.as_view(), name="api-quotas"),
    path("artifacts/<str:sha256>/", ArtifactView.as_view(), name="api-artifact"),
]
