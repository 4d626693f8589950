"""What one team may keep and send, where it differs from the site's defaults."""

from __future__ import annotations

from django.core.validators import MinValueValidator
from django.db import models

from controlplane.accounts.models.teams import Team

_AT_LEAST_ONE = [MinValueValidator(1)]


class TeamQuota(models.Model):
    """Limits of one team; an empty one is the site's default (``SHOAL_QUOTA_…``). Read them with
    ``controlplane.accounts.quotas.limits_of``."""

    team = models.OneToOneField(Team, on_delete=models.CASCADE, related_name="quota")
    stored_bytes = models.PositiveBigIntegerField(null=True, blank=True, validators=_AT_LEAST_ONE)
    adapters = models.PositiveIntegerField(null=True, blank=True, validators=_AT_LEAST_ONE)
    versions_per_adapter = models.PositiveIntegerField(null=True, blank=True, validators=_AT_LEAST_ONE)
    uploads_in_progress = models.PositiveIntegerField(null=True, blank=True, validators=_AT_LEAST_ONE)
    upload_bytes = models.PositiveBigIntegerField(null=True, blank=True, validators=_AT_LEAST_ONE)

    def __str__(self) -> str:
        return f"quota of {self.team}"
