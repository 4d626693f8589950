"""Workers seen by the telemetry bridge, and their one-minute roll-ups."""

from __future__ import annotations

from django.db import models


class Worker(models.Model):
    """Observed, never desired: the last word of one worker. Live figures are in Redis."""

    machine = models.CharField(max_length=100)
    worker_id = models.CharField(max_length=100)
    pool = models.CharField(max_length=63)
    state = models.CharField(max_length=12)
    device = models.JSONField(default=dict)
    first_seen_at = models.DateTimeField(auto_now_add=True)
    last_seen_at = models.DateTimeField()

    class Meta:
        ordering = ["machine", "worker_id"]
        constraints = [models.UniqueConstraint(fields=["machine", "worker_id"], name="one_row_per_worker")]

    def __str__(self) -> str:
        return f"{self.machine}/{self.worker_id}"


class UtilizationMinute(models.Model):
    """Means and totals of one worker over one minute; null where nothing was known."""

    worker = models.ForeignKey(Worker, on_delete=models.CASCADE, related_name="minutes")
    minute = models.DateTimeField()
    utilization = models.FloatField(null=True)
    busy = models.FloatField(null=True)
    memory_used_bytes = models.BigIntegerField(null=True)
    requests = models.PositiveIntegerField(default=0)
    tokens = models.PositiveBigIntegerField(default=0)
    errors = models.PositiveIntegerField(default=0)
    batch_rows = models.FloatField(null=True)
    batch_adapters = models.FloatField(null=True)
    queue_p50_ms = models.FloatField(null=True)
    queue_p95_ms = models.FloatField(null=True)

    class Meta:
        ordering = ["minute"]
        constraints = [models.UniqueConstraint(fields=["worker", "minute"], name="one_rollup_per_minute")]

    def __str__(self) -> str:
        return f"{self.worker} {self.minute:%H:%M}"
