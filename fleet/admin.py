"""Admin of base models and of the workers that were seen."""

from __future__ import annotations

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from controlplane.read_only_admin import ReadOnlyAdmin, acting_user
from fleet.models import BaseModel, UtilizationMinute, Worker
from fleet.services import register_base_model
from wire.errors import ShoalError


@admin.register(BaseModel)
class BaseModelAdmin(ReadOnlyAdmin):
    list_display = ["model_id", "pool", "pinned", "source", "digest", "created_at"]
    list_filter = ["pool", "pinned"]
    search_fields = ["model_id", "source"]
    actions = ["read_again"]

    @admin.action(description="Read the weights' manifest again")
    def read_again(self, request: HttpRequest, queryset: QuerySet[BaseModel]) -> None:
        for model in queryset:
            try:
                register_base_model(
                    source=model.source,
                    model_id=model.model_id,
                    pool=model.pool,
                    pinned=model.pinned,
                    actor=acting_user(request),
                )
            except ShoalError as error:
                self.message_user(request, error.info.message, messages.ERROR)


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = ["machine", "worker_id", "pool", "state", "last_seen_at"]
    list_filter = ["pool", "state", "machine"]


@admin.register(UtilizationMinute)
class UtilizationMinuteAdmin(ReadOnlyAdmin):
    list_display = ["worker", "minute", "utilization", "busy", "memory_used_bytes", "requests", "tokens", "errors"]
    list_select_related = ["worker"]
    list_filter = ["worker__machine"]
