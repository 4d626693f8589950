"""Admin pages of rows that only services may change."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.http import HttpRequest
from unfold.admin import ModelAdmin


class ReadOnlyAdmin(ModelAdmin):  # type: ignore[misc]  # unfold has no types
    """Shows rows; changes go through actions that call services."""

    def has_add_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False


def acting_user(request: HttpRequest) -> Any:
    """The signed-in person, as services take them."""
    return request.user
