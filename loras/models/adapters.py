"""An adapter is a name in a team; its aliases say which versions answer."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from controlplane.accounts.models import Team
from controlplane.accounts.models.teams import validate_name
from fleet.models import BaseModel


class Adapter(models.Model):
    """``base_model`` is known once the first version was validated. ``last_number`` is the highest number given out."""

    class Kind(models.TextChoices):
        LORA = "lora"
        FULL = "full"

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="adapters")
    name = models.CharField(max_length=63, validators=[validate_name])
    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.LORA)
    base_model = models.ForeignKey(BaseModel, null=True, blank=True, on_delete=models.PROTECT, related_name="adapters")
    last_number = models.PositiveIntegerField(default=0)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="adapters"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-updated_at", "-id"]
        constraints = [models.UniqueConstraint(fields=["team", "name"], name="one_adapter_per_name")]

    def __str__(self) -> str:
        return self.full_name

    @property
    def full_name(self) -> str:
        return f"{self.team.name}/{self.name}"


class Alias(models.Model):
    """Moves by compare-and-swap. ``split`` maps version numbers (as text, since JSON) to weights."""

    adapter = models.ForeignKey(Adapter, on_delete=models.CASCADE, related_name="aliases")
    name = models.CharField(max_length=63, validators=[validate_name])
    split = models.JSONField()
    moved_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "aliases"
        constraints = [models.UniqueConstraint(fields=["adapter", "name"], name="one_alias_per_name")]

    def __str__(self) -> str:
        return f"{self.adapter}:{self.name}"


class AliasMove(models.Model):
    """History of an alias, oldest first: what it served from ``moved_at`` on. Rollback reads it."""

    adapter = models.ForeignKey(Adapter, on_delete=models.CASCADE, related_name="alias_moves")
    alias = models.CharField(max_length=63)
    # empty when the alias was removed
    split = models.JSONField(default=dict, blank=True)
    moved_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    moved_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]
        # rollback: the moves of one alias, newest first
        indexes = [models.Index(fields=["adapter", "alias", "-id"], name="alias_history")]

    def __str__(self) -> str:
        return f"{self.adapter}:{self.alias} at {self.moved_at:%Y-%m-%d %H:%M}"
