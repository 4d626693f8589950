"""Admin of the event feed and the outbox."""

from __future__ import annotations

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from controlplane.events.models import Event, Outbox
from controlplane.events.registry import drain_outbox_rows
from controlplane.read_only_admin import ReadOnlyAdmin


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    list_display = ["created_at", "kind", "subject", "message", "team", "actor"]
    list_filter = ["kind", "team"]
    search_fields = ["subject", "message"]
    list_select_related = ["team", "actor"]


@admin.register(Outbox)
class OutboxAdmin(ReadOnlyAdmin):
    list_display = ["bucket", "key", "created_at", "attempts", "not_before", "last_error"]
    list_filter = ["bucket"]
    actions = ["drain"]

    @admin.action(description="Try again now")
    def drain(self, request: HttpRequest, queryset: QuerySet[Outbox]) -> None:
        queryset.update(not_before=None)
        drained = drain_outbox_rows()
        level = messages.WARNING if drained.waiting else messages.SUCCESS
        self.message_user(request, f"{drained.written} written, {drained.waiting} wait. {drained.error}", level)
