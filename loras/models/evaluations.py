"""Evaluations: what an uploader's own rows say of a version, measured through the fleet."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from loras.evaluation.states import RunState
from loras.models.versions import Version


class EvaluationRun(models.Model):
    """One evaluation of one version. ``rows`` is the JSONL as it was sent (bounded), ``kind`` what its rows ask.

    ``results`` has one entry per measured model: role, name, metrics, seconds. ``decision`` says why the version was
    promoted or not. ``claimed_at`` is when the process that runs it took it, ``attempts`` how often one did.
    """

    version = models.ForeignKey(Version, on_delete=models.CASCADE, related_name="evaluations")
    state = models.CharField(max_length=10, choices=[(s.value, s.value) for s in RunState], default=RunState.WAITING)
    state_since = models.DateTimeField(auto_now_add=True)
    kind = models.CharField(max_length=20)
    rows = models.TextField()
    row_count = models.PositiveIntegerField()
    promote_if_better = models.BooleanField(default=False)
    results = models.JSONField(default=list)
    decision = models.CharField(max_length=500, blank=True)
    error = models.CharField(max_length=500, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    claimed_at = models.DateTimeField(null=True, blank=True)
    dispatched_at = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        # the sweeper: unfinished runs by age
        indexes = [models.Index(fields=["state", "state_since"], name="evaluation_waiting")]

    def __str__(self) -> str:
        return f"evaluation {self.pk} of {self.version}"
