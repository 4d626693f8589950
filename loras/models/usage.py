"""What requests ran on, in minutes."""

from __future__ import annotations

from django.db import models


class UsageMinute(models.Model):
    """Requests of one minute that one target answered for one team, by the alias they came through ("" for none).

    ``target`` is ``team/adapter@3`` or a base model's id. ``failed`` counts failures of the serving side by error code;
    ``latency`` are counts per bucket of ``wire.usage.LATENCY_BOUNDS_MS`` and one above it. Rows name things by name,
    so that they outlive what they tell of; they are pruned by age.
    """

    team = models.CharField(max_length=63)
    target = models.CharField(max_length=200)
    alias = models.CharField(max_length=63, blank=True)
    minute = models.DateTimeField()
    requests = models.PositiveIntegerField()
    refused = models.PositiveIntegerField(default=0)
    tokens = models.PositiveBigIntegerField(default=0)
    failed = models.JSONField(default=dict)
    latency = models.JSONField(default=list)
    latency_sum_ms = models.FloatField(default=0.0)

    class Meta:
        ordering = ["minute"]
        constraints = [
            models.UniqueConstraint(fields=["team", "target", "alias", "minute"], name="one_usage_row_per_minute")
        ]
        indexes = [
            # an adapter's figures: its targets over a range of minutes
            models.Index(fields=["team", "minute"], name="usage_of_team"),
            # pruning
            models.Index(fields=["minute"], name="usage_age"),
        ]

    def __str__(self) -> str:
        return f"{self.target} at {self.minute:%H:%M}"
