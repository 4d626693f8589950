"""Resumable uploads: one row for each file on its way."""

from __future__ import annotations

import secrets

from django.conf import settings
from django.db import models
from django.utils import timezone

from controlplane.accounts.models import Team
from loras.models.versions import Version


def new_upload_id() -> str:
    """128 random bits: an upload's address tells nobody of another."""
    return secrets.token_hex(16)


class Upload(models.Model):
    """One file, sent in any number of requests. Its bytes are ``uploads/<id>.part`` below the home; the size of that
    file is the offset that counts, ``offset_bytes`` is what was last noted of it and never ahead.

    ``unverified_from`` is where a chunk with a checksum begins while it is being written: bytes from there on are
    dropped when its process died. ``stored``: the content was known when the upload began, so that no byte travels.
    ``sha256`` is computed here once all bytes are there, ``wanted_sha256`` what the sender announced. ``metadata``
    holds what came as ``Upload-Metadata``. ``version`` is what the upload became a part of.
    """

    class State(models.TextChoices):
        OPEN = "open"
        COMPLETED = "completed"
        EXPIRED = "expired"

    class Role(models.TextChoices):
        ADAPTER = "adapter"
        EVALUATION = "evaluation"

    id = models.CharField(primary_key=True, max_length=32, default=new_upload_id)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="uploads")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="uploads"
    )
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN)
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.ADAPTER)
    # the part behind the team's name; empty until the upload is completed when the sender did not say
    adapter = models.CharField(max_length=63, blank=True)
    path = models.CharField(max_length=500)
    size_bytes = models.BigIntegerField()
    offset_bytes = models.BigIntegerField(default=0)
    unverified_from = models.BigIntegerField(null=True, blank=True)
    stored = models.BooleanField(default=False)
    wanted_sha256 = models.CharField(max_length=64, blank=True)
    sha256 = models.CharField(max_length=64, blank=True)
    metadata = models.JSONField(default=dict)
    version = models.ForeignKey(Version, null=True, blank=True, on_delete=models.SET_NULL, related_name="uploads")
    created_at = models.DateTimeField(auto_now_add=True)
    touched_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            # quotas and lists: what a team has open
            models.Index(fields=["team", "state"], name="upload_team_state"),
            # the sweeper: by last byte
            models.Index(fields=["state", "touched_at"], name="upload_waiting"),
        ]

    def __str__(self) -> str:
        return f"upload {self.id[:8]} of {self.path}"
