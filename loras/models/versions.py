"""A version: immutable content, a state, and the report that decided it."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from loras.models.adapters import Adapter
from loras.states import State


class Version(models.Model):
    """``digest`` is the SHA-256 of the canonical artifact (empty until ready). ``upload_fingerprint`` is a SHA-256 over
    the sorted (path, sha256, size) of what was uploaded, to recognise the same bytes at once. ``attempts`` counts
    validations that were started; ``claimed_at`` is when the running one was. ``duplicate_of`` is set when the content
    turned out to be that of an earlier version of this adapter. ``wanted_base_model``, ``wanted_kind`` and
    ``wanted_choice`` are what the uploader said or answered; ``deleted_at`` marks a version that is listed no more and
    may be restored until the sweeper takes it."""

    class Mode(models.TextChoices):
        PACKED = "packed"
        MERGED = "merged"
        FULL = "full"

    adapter = models.ForeignKey(Adapter, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=12, choices=[(s.value, s.value) for s in State], default=State.RECEIVING)
    state_since = models.DateTimeField(auto_now_add=True)
    digest = models.CharField(max_length=64, blank=True)
    upload_fingerprint = models.CharField(max_length=64, blank=True)
    duplicate_of = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    mode = models.CharField(max_length=10, choices=Mode.choices, blank=True)
    mode_reason = models.CharField(max_length=300, blank=True)
    wanted_base_model = models.CharField(max_length=200, blank=True)
    wanted_kind = models.CharField(max_length=10, blank=True)
    wanted_choice = models.CharField(max_length=500, blank=True)
    promote = models.BooleanField(default=False)
    message = models.CharField(max_length=500, blank=True)
    # wire.reports.Report as JSON: rows, question, facts
    report = models.JSONField(null=True, blank=True)
    size_bytes = models.BigIntegerField(default=0)
    attempts = models.PositiveSmallIntegerField(default=0)
    claimed_at = models.DateTimeField(null=True, blank=True)
    # when its validation was last put on the queue; the sweeper does so again when nobody claimed it
    dispatched_at = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="versions"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    ready_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["adapter", "number"], name="one_version_per_number")]
        indexes = [
            # the sweeper: waiting states by age
            models.Index(fields=["state", "state_since"], name="version_waiting"),
            # same bytes again, same content again
            models.Index(fields=["adapter", "upload_fingerprint"], name="version_fingerprint"),
            models.Index(fields=["adapter", "digest"], name="version_digest"),
            # the sweeper
            models.Index(fields=["deleted_at"], name="version_deleted"),
        ]

    def __str__(self) -> str:
        return f"{self.adapter}@{self.number}"
