"""Base models that adapters are made for."""

from __future__ import annotations

from django.db import models


class BaseModel(models.Model):
    """``model_id`` is what requests name; ``manifest`` is ``wire.manifest.Manifest`` as JSON."""

    model_id = models.CharField(max_length=200, unique=True)
    source = models.CharField(max_length=500)
    pool = models.CharField(max_length=63, default="default")
    digest = models.CharField(max_length=64)
    manifest = models.JSONField()
    pinned = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["model_id"]

    def __str__(self) -> str:
        return self.model_id
