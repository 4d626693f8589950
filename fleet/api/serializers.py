"""Shapes of the fleet's REST answers. Live parts are those of the socket, see ``fleet.payloads``."""

from __future__ import annotations

from typing import Any

import msgspec
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from fleet import payloads
from fleet.models import BaseModel
from fleet.rows import WorkerRow


class BaseModelSerializer(serializers.ModelSerializer[BaseModel]):
    """A base model. The module list of its manifest is left out: it has hundreds of rows."""

    id = serializers.CharField(source="model_id", read_only=True)
    family = serializers.SerializerMethodField()
    tasks = serializers.SerializerMethodField()
    dimension = serializers.SerializerMethodField()
    max_tokens = serializers.SerializerMethodField()
    parameters = serializers.SerializerMethodField()
    size_bytes = serializers.SerializerMethodField()

    class Meta:
        model = BaseModel
        fields = [
            "id", "digest", "source", "pool", "pinned", "created_at",
            "family", "tasks", "dimension", "max_tokens", "parameters", "size_bytes",
        ]  # fmt: skip

    def get_family(self, row: BaseModel) -> str | None:
        value: str | None = row.manifest.get("family")
        return value

    def get_tasks(self, row: BaseModel) -> list[str]:
        return list(row.manifest.get("tasks", []))

    def get_dimension(self, row: BaseModel) -> int | None:
        value: int | None = row.manifest.get("dimension")
        return value

    def get_max_tokens(self, row: BaseModel) -> int | None:
        value: int | None = row.manifest.get("max_tokens")
        return value

    def get_parameters(self, row: BaseModel) -> int | None:
        value: int | None = row.manifest.get("parameters")
        return value

    def get_size_bytes(self, row: BaseModel) -> int | None:
        value: int | None = row.manifest.get("size_bytes")
        return value


class PoolSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    base_models = serializers.ListField(child=serializers.CharField())
    models_served = serializers.ListField(child=serializers.CharField())
    machines = serializers.IntegerField()
    workers = serializers.IntegerField()
    workers_ready = serializers.IntegerField()


@extend_schema_field({"type": "object", "nullable": True, "description": "Live figures as in the socket's messages."})
class LiveField(serializers.Field[Any, Any, Any, Any]):
    """``payloads.Worker`` as plain JSON."""

    def to_representation(self, value: payloads.Worker) -> Any:
        return msgspec.to_builtins(value)


class WorkerSerializer(serializers.Serializer[WorkerRow]):
    """``stale`` is true when nothing was heard for more than 5 s; ``live`` is null without live data."""

    id = serializers.CharField(source="key")
    machine = serializers.CharField()
    worker = serializers.CharField()
    pool = serializers.CharField()
    state = serializers.CharField()
    stale = serializers.BooleanField()
    last_seen = serializers.FloatField()
    last_seen_s = serializers.FloatField()
    device = serializers.SerializerMethodField()
    live = LiveField(allow_null=True)

    @extend_schema_field({"type": "object"})
    def get_device(self, row: WorkerRow) -> Any:
        return msgspec.to_builtins(row.device)


class ResidentForm(serializers.Serializer[Any]):
    """A resident adapter or model of a worker, as `live` shows it."""

    digest = serializers.RegexField(r"^[0-9a-f]{64}$")


class PinForm(ResidentForm):
    """Whether it stays until this is taken back."""

    pinned = serializers.BooleanField(required=False, default=True)


class WorkersSerializer(serializers.Serializer[Any]):
    """``live_available`` is false when Redis could not be read and the rows are the database's last word."""

    at = serializers.FloatField()
    live_available = serializers.BooleanField()
    results = WorkerSerializer(many=True)


class MinutesSerializer(serializers.Serializer[Any]):
    at = serializers.ListField(child=serializers.IntegerField())
    utilization = serializers.ListField(child=serializers.FloatField(allow_null=True))
    busy = serializers.ListField(child=serializers.FloatField(allow_null=True))
    memory_used_bytes = serializers.ListField(child=serializers.IntegerField(allow_null=True))
    requests_per_s = serializers.ListField(child=serializers.FloatField())
    tokens_per_s = serializers.ListField(child=serializers.FloatField())
    # a column of this name hides the serializer's own property, which a read-only serializer never asks for
    errors = serializers.ListField(child=serializers.IntegerField())  # type: ignore[assignment]
    batch_rows = serializers.ListField(child=serializers.FloatField(allow_null=True))
    batch_adapters = serializers.ListField(child=serializers.FloatField(allow_null=True))
    queue_p50_ms = serializers.ListField(child=serializers.FloatField(allow_null=True))
    queue_p95_ms = serializers.ListField(child=serializers.FloatField(allow_null=True))
