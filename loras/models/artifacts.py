"""Content-addressed files: each content once, however many versions hold it."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from loras.models.versions import Version


class Artifact(models.Model):
    """Bytes in the store under their SHA-256."""

    sha256 = models.CharField(max_length=64, primary_key=True)
    size_bytes = models.BigIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)
    # the last time somebody stored these bytes; unused content is kept for a while after it
    stored_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.sha256[:12]


class VersionFile(models.Model):
    """A file of a version: as ``uploaded``, or the ``canonical`` one that workers load."""

    class Role(models.TextChoices):
        UPLOADED = "uploaded"
        CANONICAL = "canonical"

    version = models.ForeignKey(Version, on_delete=models.CASCADE, related_name="files")
    artifact = models.ForeignKey(Artifact, on_delete=models.PROTECT, related_name="uses")
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.UPLOADED)
    path = models.CharField(max_length=500)

    class Meta:
        ordering = ["role", "path"]
        constraints = [models.UniqueConstraint(fields=["version", "role", "path"], name="one_file_per_path")]

    def __str__(self) -> str:
        return self.path
