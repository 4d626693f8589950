"""Bodies of resumable uploads, of known content and of quotas."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from rest_framework import serializers

from loras.api.serializers import WishesForm, version_url
from loras.models import Upload, Version
from loras.uploads.known import SHA256
from loras.uploads.services import offset_of
from loras.uploads.sweep import expires_at
from wire.errors import ShoalError

MOST_FILES = 500


class KnownVersionBody(serializers.Serializer[Version]):
    """A version that holds the content already."""

    name = serializers.CharField(source="adapter.full_name")
    number = serializers.IntegerField()
    state = serializers.CharField()
    url = serializers.SerializerMethodField()

    def get_url(self, version: Version) -> str:
        return version_url(self.context["request"], version)


class UploadBody(serializers.Serializer[Upload]):
    """One file on its way. ``offset`` is where the next byte goes, null when the upload was given up."""

    id = serializers.CharField()
    team = serializers.CharField(source="team.name")
    name = serializers.SerializerMethodField(help_text="Full name of the adapter; empty until it is said.")
    path = serializers.CharField()
    state = serializers.CharField(help_text="open, completed or expired.")
    role = serializers.CharField(help_text="adapter, or evaluation for the rows to evaluate it with.")
    length = serializers.IntegerField(source="size_bytes")
    offset = serializers.SerializerMethodField()
    sha256 = serializers.SerializerMethodField(help_text="Computed here, else as announced, else empty.")
    created_at = serializers.DateTimeField()
    expires_at = serializers.SerializerMethodField()
    url = serializers.SerializerMethodField()

    def get_name(self, upload: Upload) -> str:
        return f"{upload.team.name}/{upload.adapter}" if upload.adapter else ""

    def get_offset(self, upload: Upload) -> int | None:
        try:
            return offset_of(upload)
        except ShoalError:
            return None

    def get_sha256(self, upload: Upload) -> str:
        return str(upload.sha256 or upload.wanted_sha256)

    def get_expires_at(self, upload: Upload) -> str:
        return expires_at(upload).isoformat()

    def get_url(self, upload: Upload) -> str:
        return upload_url(self.context["request"], upload)


class NewUploadBody(UploadBody):
    """A new upload. ``known`` names versions that hold this content already: then nothing has to be sent."""

    known = KnownVersionBody(many=True)


class CompleteForm(WishesForm):
    """What the finished uploads become. Fields that are left out are taken from the upload's own metadata."""

    name = serializers.CharField(required=False, max_length=200, help_text="Full name, team/adapter.")
    uploads = serializers.ListField(
        child=serializers.CharField(max_length=64),
        required=False,
        default=list,
        max_length=MOST_FILES,
        help_text="Ids of the other uploads of the same version: the other files of a folder.",
    )


class AnnouncedFileForm(serializers.Serializer[Any]):
    """A file before it is sent."""

    path = serializers.CharField(max_length=500)
    sha256 = serializers.RegexField(SHA256)
    size_bytes = serializers.IntegerField(min_value=0, max_value=2**63 - 1)


class KnownForm(serializers.Serializer[Any]):
    """All files of an upload."""

    name = serializers.CharField(required=False, allow_blank=True, default="", max_length=200)
    files = serializers.ListField(child=AnnouncedFileForm(), min_length=1, max_length=MOST_FILES)


class KnownBody(serializers.Serializer[Any]):
    """``versions`` consist of exactly these files; ``stored`` are the SHA-256 of files that need not be sent."""

    versions = KnownVersionBody(many=True)
    stored = serializers.ListField(child=serializers.CharField())


class LimitsBody(serializers.Serializer[Any]):
    """Limits of a team."""

    stored_bytes = serializers.IntegerField()
    adapters = serializers.IntegerField()
    versions_per_adapter = serializers.IntegerField()
    uploads_in_progress = serializers.IntegerField()
    upload_bytes = serializers.IntegerField()


class UseBody(serializers.Serializer[Any]):
    """What a team uses. ``reserved_bytes`` are announced by unfinished uploads."""

    stored_bytes = serializers.IntegerField()
    reserved_bytes = serializers.IntegerField()
    adapters = serializers.IntegerField()
    uploads_in_progress = serializers.IntegerField()


class QuotaBody(serializers.Serializer[Any]):
    """Quota of one team."""

    team = serializers.CharField()
    limits = LimitsBody()
    used = UseBody()


def upload_url(request: Any, upload: Upload) -> str:
    """Absolute address of an upload."""
    return str(request.build_absolute_uri(reverse("api-upload", args=[upload.pk])))
