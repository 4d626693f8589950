"""An adapter is a name in a team; its aliases say which versions answer."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from controlplane.accounts.models import Team
from controlplane.accounts.models.teams import validate_name
from fleet.models import BaseModel


class KeptAdapters(models.Manager["Adapter"]):
    """Adapters that are not deleted: what everybody but the sweeper and a restore means by an adapter."""

    def get_queryset(self) -> models.QuerySet[Adapter]:
        return super().get_queryset().filter(deleted_at=None)


class Adapter(models.Model):
    """``base_model`` and ``kind`` are known once the first version was validated; a fine-tune may have no base.
    ``last_number`` is the highest number given out. ``objects`` leaves out what was deleted and may still be restored;
    ``everything`` does not."""

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
    # deleted by a person: gone for every reader, restorable until the sweeper takes it
    deleted_at = models.DateTimeField(null=True, blank=True)

    objects = KeptAdapters()
    everything = models.Manager["Adapter"]()

    class Meta:
        ordering = ["-updated_at", "-id"]
        base_manager_name = "everything"
        default_manager_name = "objects"
        constraints = [
            models.UniqueConstraint(
                fields=["team", "name"], condition=models.Q(deleted_at=None), name="one_adapter_per_name"
            )
        ]
        # the sweeper, and a team's list of what it may restore
        indexes = [models.Index(fields=["deleted_at"], name="adapter_deleted")]

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


class AliasHold(models.Model):
    """A canary that was taken out of an alias's split without a person. ``split_before`` and ``split_after`` are the
    alias's splits around it; ``figures`` what was measured; ``resumed_at`` is when a person put it back."""

    adapter = models.ForeignKey(Adapter, on_delete=models.CASCADE, related_name="holds")
    alias = models.CharField(max_length=63)
    number = models.PositiveIntegerField()
    reason = models.CharField(max_length=500)
    figures = models.JSONField(default=dict)
    split_before = models.JSONField()
    split_after = models.JSONField()
    held_at = models.DateTimeField(auto_now_add=True)
    resumed_at = models.DateTimeField(null=True, blank=True)
    resumed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ["-id"]
        # a page and a resume: the holds of one adapter, newest first
        indexes = [models.Index(fields=["adapter", "-id"], name="hold_of_adapter")]

    def __str__(self) -> str:
        return f"{self.adapter}:{self.alias} without @{self.number}"


class AliasMove(models.Model):
    """History of an alias, oldest first: what it served from ``moved_at`` on. Rollback reads it."""

    adapter = models.ForeignKey(Adapter, on_delete=models.CASCADE, related_name="alias_moves")
    alias = models.CharField(max_length=63)
    # empty when the alias was removed
    split = models.JSONField(default=dict, blank=True)
    # set on a rollback: the move that it went back to, so that the next rollback goes further back
    restores = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
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
