"""Pages of accounts."""

from __future__ import annotations

from django.contrib.auth.views import LoginView, LogoutView, PasswordChangeDoneView, PasswordChangeView
from django.urls import path

from controlplane.accounts import team_views, views

urlpatterns = [
    path("login/", LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("password/", PasswordChangeView.as_view(), name="password_change"),
    path("password/done/", PasswordChangeDoneView.as_view(), name="password_change_done"),
    path("keys/", views.keys, name="keys"),
    path("keys/<int:key_id>/change/", views.change_key, name="change_key"),
    path("teams/", team_views.teams, name="teams"),
    path("teams/<str:name>/", team_views.team, name="team"),
    path("teams/<str:name>/people/", team_views.change_member, name="change_member"),
    path("teams/<str:name>/people/<str:username>/remove/", team_views.ask_removal, name="remove_member"),
    path("keys/<int:key_id>/revoke/", views.revoke_key, name="revoke_key"),
]
