"""REST addresses of keys and of who asks."""

from __future__ import annotations

from django.urls import path

from controlplane.accounts.api.teams import MemberListView, MemberView, TeamListView
from controlplane.accounts.api.views import KeyListView, KeyView, MeView

urlpatterns = [
    path("me/", MeView.as_view(), name="api-me"),
    path("keys/", KeyListView.as_view(), name="api-keys"),
    path("keys/<int:key_id>/", KeyView.as_view(), name="api-key"),
    path("teams/", TeamListView.as_view(), name="api-teams"),
    path("teams/<str:team>/members/", MemberListView.as_view(), name="api-members"),
    path("teams/<str:team>/members/<str:username>/", MemberView.as_view(), name="api-member"),
]
