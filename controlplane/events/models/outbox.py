"""Transactional outbox towards the JetStream KV buckets."""

from __future__ import annotations

from django.db import models


class Outbox(models.Model):
    """A KV entry that must be rewritten. The row names the entry, never its value: the value is made from the
    database when the row is drained, so that draining twice or out of order ends in the same state."""

    bucket = models.CharField(max_length=20)
    key = models.CharField(max_length=300)
    created_at = models.DateTimeField(auto_now_add=True)
    attempts = models.PositiveIntegerField(default=0)
    # a row that failed waits until then; the newest failure in words
    not_before = models.DateTimeField(null=True, blank=True)
    last_error = models.CharField(max_length=300, blank=True)

    class Meta:
        ordering = ["id"]
        verbose_name_plural = "outbox"

    def __str__(self) -> str:
        return f"{self.bucket}/{self.key}"
