"""Bodies of adapters and versions."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from django.urls import reverse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from loras.models import Adapter, Version, VersionFile
from loras.services.aliases import aliases_on
from loras.services.removal import DELETED_KEPT
from loras.services.uploads import IF_BETTER
from loras.states import State
from wire.reports import Outcome

SPLIT = {"type": "object", "additionalProperties": {"type": "integer"}, "example": {"3": 95, "4": 5}}
ALIASES = {"type": "object", "additionalProperties": SPLIT, "example": {"live": {"3": 100}}}


class NewestBody(serializers.Serializer[Any]):
    """The newest version in brief."""

    number = serializers.IntegerField()
    state = serializers.ChoiceField(choices=[state.value for state in State])


class AdapterBody(serializers.Serializer[Adapter]):
    """An adapter. ``aliases``: alias → version number → weight."""

    name = serializers.CharField(source="full_name", help_text="Full name, team/adapter.")
    team = serializers.CharField(source="team.name")
    kind = serializers.ChoiceField(choices=Adapter.Kind.choices)
    base_model = serializers.SerializerMethodField(help_text="Null until a version is ready.")
    aliases = serializers.SerializerMethodField()
    newest = serializers.SerializerMethodField()
    created_by = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()
    url = serializers.SerializerMethodField()

    def get_base_model(self, adapter: Adapter) -> str | None:
        return adapter.base_model.model_id if adapter.base_model else None

    @extend_schema_field(ALIASES)
    def get_aliases(self, adapter: Adapter) -> dict[str, dict[str, int]]:
        return {alias.name: alias.split for alias in adapter.aliases.all()}

    @extend_schema_field(NewestBody(allow_null=True))
    def get_newest(self, adapter: Adapter) -> dict[str, Any] | None:
        number = getattr(adapter, "newest_number", None)
        return None if number is None else {"number": number, "state": getattr(adapter, "newest_state", None)}

    def get_created_by(self, adapter: Adapter) -> str | None:
        return adapter.created_by.get_username() if adapter.created_by else None

    def get_url(self, adapter: Adapter) -> str:
        path = reverse("api-adapter", args=[adapter.team.name, adapter.name])
        return str(self.context["request"].build_absolute_uri(path))


class RowBody(serializers.Serializer[Any]):
    """One check of a validation."""

    check = serializers.CharField()
    outcome = serializers.ChoiceField(choices=[outcome.value for outcome in Outcome])
    code = serializers.CharField()
    found = serializers.CharField()
    todo = serializers.CharField(required=False)


class QuestionBody(serializers.Serializer[Any]):
    """The one fact that ``needs_input`` asks for."""

    field = serializers.CharField()
    text = serializers.CharField()
    choices = serializers.ListField(child=serializers.CharField())


class FactsBody(serializers.Serializer[Any]):
    """What the adapter is. Fields without a value are left out. ``labels`` are those of a classifier, in order."""

    base_model = serializers.CharField(required=False)
    rank = serializers.IntegerField(required=False)
    alpha = serializers.FloatField(required=False)
    targets = serializers.ListField(child=serializers.CharField(), required=False)
    modules = serializers.IntegerField(required=False)
    tensors = serializers.IntegerField(required=False)
    dtype = serializers.CharField(required=False)
    parameters = serializers.IntegerField(required=False)
    size_bytes = serializers.IntegerField(required=False)
    has_effect = serializers.BooleanField(required=False)
    tasks = serializers.ListField(child=serializers.CharField(), required=False)
    labels = serializers.ListField(child=serializers.CharField(), required=False)
    architecture = serializers.CharField(required=False)
    dimension = serializers.IntegerField(required=False, allow_null=True)
    max_tokens = serializers.IntegerField(required=False, allow_null=True)
    vocabulary = serializers.IntegerField(required=False, allow_null=True)


class ReportBody(serializers.Serializer[Any]):
    """Verdict of a validation, row by row."""

    rows = RowBody(many=True)
    question = QuestionBody(required=False)
    digest = serializers.CharField(required=False)
    mode = serializers.CharField(required=False)
    mode_reason = serializers.CharField(required=False)
    facts = FactsBody(required=False)
    seconds = serializers.FloatField(required=False)
    kind = serializers.CharField(required=False)


class FileBody(serializers.Serializer[VersionFile]):
    """A file of a version."""

    path = serializers.CharField()
    role = serializers.ChoiceField(choices=VersionFile.Role.choices)
    sha256 = serializers.CharField(source="artifact.sha256")
    size_bytes = serializers.IntegerField(source="artifact.size_bytes")


class VersionBody(serializers.Serializer[Version]):
    """A version. ``digest`` is empty until it is ready. ``duplicate_upload`` is the number of the upload that was
    asked for when its content turned out to be this version's."""

    name = serializers.CharField(source="adapter.full_name", help_text="Full name of the adapter.")
    number = serializers.IntegerField()
    state = serializers.ChoiceField(choices=[state.value for state in State])
    digest = serializers.CharField()
    mode = serializers.CharField()
    mode_reason = serializers.CharField()
    message = serializers.CharField()
    size_bytes = serializers.IntegerField(help_text="Bytes of the upload.")
    aliases = serializers.SerializerMethodField()
    report = serializers.SerializerMethodField()
    files = FileBody(many=True)
    created_by = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField()
    ready_at = serializers.DateTimeField(allow_null=True)
    deleted_at = serializers.DateTimeField(allow_null=True)
    restorable_until = serializers.SerializerMethodField()
    url = serializers.SerializerMethodField()
    duplicate_upload = serializers.SerializerMethodField()

    def get_aliases(self, version: Version) -> list[str]:
        return aliases_on(version.adapter, version.number)

    @extend_schema_field(ReportBody(allow_null=True))
    def get_report(self, version: Version) -> dict[str, Any] | None:
        return cast("dict[str, Any] | None", version.report)

    def get_created_by(self, version: Version) -> str | None:
        return version.created_by.get_username() if version.created_by else None

    def get_url(self, version: Version) -> str:
        return version_url(self.context["request"], version)

    def get_restorable_until(self, version: Version) -> datetime | None:
        return version.deleted_at + DELETED_KEPT if version.deleted_at else None

    def get_duplicate_upload(self, version: Version) -> int | None:
        return self.context.get("duplicate_upload")


@extend_schema_field({"oneOf": [{"type": "boolean"}, {"type": "string", "enum": [IF_BETTER]}]})
class PromoteField(serializers.Field[bool | str, Any, bool | str, Any]):
    """``true``, ``false``, or ``if_better``: when the attached evaluation says so."""

    def to_internal_value(self, data: Any) -> bool | str:
        return IF_BETTER if data == IF_BETTER else bool(serializers.BooleanField().to_internal_value(data))

    def to_representation(self, value: bool | str) -> bool | str:
        return value


class WishesForm(serializers.Serializer[Any]):
    """What an upload asks for beside its files."""

    base_model = serializers.CharField(required=False, allow_blank=True, default="", max_length=200)
    kind = serializers.ChoiceField(
        choices=Adapter.Kind.choices, required=False, allow_blank=True, default="",
        help_text="What the upload must be; without it, what it turns out to be.",
    )  # fmt: skip
    promote = PromoteField(required=False, default=False)
    message = serializers.CharField(required=False, allow_blank=True, default="", max_length=500)
    choice = serializers.CharField(
        required=False, allow_blank=True, default="", max_length=500,
        help_text="Which folder or file is meant where the upload holds several.",
    )  # fmt: skip


class UploadForm(WishesForm):
    """An upload in one request."""

    file = serializers.FileField(required=False, help_text=".zip, .tar.gz or .safetensors")
    files = serializers.ListField(
        child=serializers.FileField(), required=False, help_text="Files of a folder; also as files[]."
    )
    paths = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Their relative paths in the same order; also as paths[].",
    )
    evaluation = serializers.FileField(required=False, help_text="Rows to measure the version on, JSON lines.")


class NewAdapterForm(UploadForm):
    """An upload that names its adapter."""

    name = serializers.CharField(max_length=200, help_text="Full name, team/adapter.")


class AliasForm(serializers.Serializer[Any]):
    """Where an alias goes: one version or a split by weight. ``expect`` is where it is believed to point: a split as
    ``aliases`` of the adapter shows it, ``{"version": 3}``, or null for nowhere."""

    version = serializers.IntegerField(required=False, min_value=1)
    split = serializers.DictField(child=serializers.IntegerField(), required=False)
    expect = serializers.JSONField(required=False, allow_null=True)
    confirm = serializers.BooleanField(required=False, default=False)


class RollbackForm(serializers.Serializer[Any]):
    """Which alias goes back."""

    alias = serializers.CharField(required=False, default="live", max_length=63)


class AnswerForm(serializers.Serializer[Any]):
    """The answer to a version's question."""

    field = serializers.CharField()
    value = serializers.CharField()


def version_url(request: Any, version: Version) -> str:
    """Absolute address of a version."""
    adapter = version.adapter
    path = reverse("api-version", args=[adapter.team.name, adapter.name, version.number])
    return str(request.build_absolute_uri(path))
