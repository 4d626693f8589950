"""The event feed: one row with every state change, written in the same transaction."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from controlplane.accounts.models import Team


class Event(models.Model):
    """``subject`` is what it happened to (``team/adapter@3``, a worker, a key); ``data`` its particulars."""

    team = models.ForeignKey(Team, null=True, blank=True, on_delete=models.CASCADE, related_name="events")
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="events"
    )
    kind = models.CharField(max_length=60)
    subject = models.CharField(max_length=200)
    message = models.CharField(max_length=500)
    data = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            # an adapter's Events tab
            models.Index(fields=["subject", "-id"], name="event_subject"),
            # a team's feed
            models.Index(fields=["team", "-id"], name="event_team"),
        ]

    def __str__(self) -> str:
        return self.message
