"""Admin of people, teams, memberships and API keys."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin, StackedInline
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from controlplane.accounts.models import ApiKey, Membership, Team, TeamQuota
from controlplane.accounts.services import create_team_for, revoke_api_key
from controlplane.read_only_admin import ReadOnlyAdmin, acting_user

admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class UserAdmin(DjangoUserAdmin, ModelAdmin):  # type: ignore[misc,type-arg]  # unfold has no types
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    actions = ["make_teams"]

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        """A new person gets a team of their own at once: without one they could do nothing."""
        super().save_model(request, obj, form, change)
        if not change:
            create_team_for(user=obj)

    @admin.action(description="Make a team for each selected person without one")
    def make_teams(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        names = [create_team_for(user=user).name for user in queryset]
        self.message_user(request, f"Teams: {', '.join(names)}.", messages.SUCCESS)


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, ModelAdmin):  # type: ignore[misc]  # unfold has no types
    pass


class QuotaInline(StackedInline):  # type: ignore[misc]  # unfold has no types
    """Limits of the team; empty ones are the site's defaults."""

    model = TeamQuota


@admin.register(Team)
class TeamAdmin(ModelAdmin):  # type: ignore[misc]  # unfold has no types
    list_display = ["name", "created_at"]
    search_fields = ["name"]
    inlines = [QuotaInline]


@admin.register(Membership)
class MembershipAdmin(ModelAdmin):  # type: ignore[misc]  # unfold has no types
    list_display = ["user", "team", "role", "created_at"]
    list_filter = ["role"]
    search_fields = ["user__username", "team__name"]
    autocomplete_fields = ["user", "team"]


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    list_display = ["name", "prefix", "team", "scopes", "created_by", "last_used_at", "expires_at", "revoked_at"]
    list_filter = ["team"]
    search_fields = ["name", "prefix", "team__name"]
    exclude = ["sha256"]
    actions = ["revoke"]

    @admin.action(description="Revoke")
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        revoked = sum(revoke_api_key(key=key, actor=acting_user(request)) for key in queryset)
        self.message_user(request, f"{revoked} keys revoked.", messages.SUCCESS)
