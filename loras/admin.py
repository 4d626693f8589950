"""Admin of adapters, versions, aliases and stored content."""

from __future__ import annotations

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from controlplane.read_only_admin import ReadOnlyAdmin, acting_user
from loras.models import Adapter, Alias, AliasMove, Artifact, Upload, Version, VersionFile
from loras.services import retire_version
from wire.errors import ShoalError


@admin.register(Adapter)
class AdapterAdmin(ReadOnlyAdmin):
    list_display = ["full_name", "kind", "base_model", "last_number", "created_by", "updated_at"]
    list_filter = ["kind", "base_model", "team"]
    list_select_related = ["team", "base_model", "created_by"]
    search_fields = ["name", "team__name"]


@admin.register(Version)
class VersionAdmin(ReadOnlyAdmin):
    list_display = ["__str__", "state", "state_since", "mode", "digest", "size_bytes", "attempts", "created_by"]
    list_filter = ["state", "mode", "adapter__team"]
    list_select_related = ["adapter__team", "created_by"]
    search_fields = ["adapter__name", "digest"]
    actions = ["retire"]

    @admin.action(description="Take out of service")
    def retire(self, request: HttpRequest, queryset: QuerySet[Version]) -> None:
        for version in queryset.select_related("adapter__team"):
            try:
                retire_version(version=version, actor=acting_user(request))
            except ShoalError as error:
                self.message_user(request, error.info.message, messages.ERROR)


@admin.register(Alias)
class AliasAdmin(ReadOnlyAdmin):
    list_display = ["__str__", "split", "moved_at"]
    list_select_related = ["adapter__team"]
    search_fields = ["name", "adapter__name"]


@admin.register(AliasMove)
class AliasMoveAdmin(ReadOnlyAdmin):
    list_display = ["moved_at", "adapter", "alias", "split", "moved_by"]
    list_select_related = ["adapter__team", "moved_by"]
    list_filter = ["alias"]


@admin.register(Artifact)
class ArtifactAdmin(ReadOnlyAdmin):
    list_display = ["sha256", "size_bytes", "stored_at"]
    search_fields = ["sha256"]


@admin.register(VersionFile)
class VersionFileAdmin(ReadOnlyAdmin):
    list_display = ["version", "role", "path", "artifact"]
    list_filter = ["role"]
    list_select_related = ["version__adapter__team", "artifact"]


@admin.register(Upload)
class UploadAdmin(ReadOnlyAdmin):
    list_display = ["id", "team", "adapter", "path", "state", "offset_bytes", "size_bytes", "touched_at", "created_by"]
    list_filter = ["state", "team"]
    list_select_related = ["team", "created_by"]
    search_fields = ["id", "adapter", "path"]
