"""API keys: shown once, stored as SHA-256."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from controlplane.accounts.models.teams import Team


class ApiKeyQuerySet(models.QuerySet["ApiKey"]):
    def usable(self) -> ApiKeyQuerySet:
        """Keys that are neither revoked nor expired."""
        return self.filter(revoked_at=None).filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()))


class ApiKey(models.Model):
    """A secret ``shoal_…`` of one team. ``prefix`` is the part shown in lists, ``scopes`` are values of
    ``wire.registry.Scope``."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="api_keys")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="api_keys"
    )
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=16)
    # looked up on every API request
    sha256 = models.CharField(max_length=64, unique=True)
    scopes = models.JSONField(default=list)
    # limits the gateway enforces; null is none
    max_in_flight = models.PositiveIntegerField(null=True, blank=True)
    requests_per_minute = models.PositiveIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = ApiKeyQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
