"""``metrics/`` of an adapter: what requests say of its versions."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.accounts.api.permissions import principal_of
from loras.api.answers import ERRORS
from loras.metrics.figures import Figures
from loras.metrics.queries import MAX_MINUTES, AdapterMetrics, TargetFigures, read_metrics
from loras.models import AliasHold
from loras.queries import get_adapter
from wire.errors import Code, ShoalError
from wire.registry import Scope

DEFAULT_MINUTES = 60


class FiguresBody(serializers.Serializer[Figures]):
    """Requests that ended. ``failed`` are the serving side's failures by error code, ``refused`` the requests' own
    fault, which no rate counts. Percentiles are null without an answer."""

    requests = serializers.IntegerField()
    failures = serializers.IntegerField()
    refused = serializers.IntegerField()
    error_rate = serializers.FloatField(allow_null=True)
    p50_ms = serializers.FloatField(allow_null=True)
    p95_ms = serializers.FloatField(allow_null=True)
    mean_ms = serializers.FloatField(allow_null=True)
    tokens = serializers.IntegerField()
    failed = serializers.SerializerMethodField()

    @extend_schema_field({"type": "object", "additionalProperties": {"type": "integer"}})
    def get_failed(self, figures: Figures) -> dict[str, int]:
        return dict(figures.failed)


class VersionMetricsBody(serializers.Serializer[TargetFigures]):
    """Figures of one version, over all ways to it."""

    version = serializers.IntegerField(source="number")
    figures = FiguresBody()
    last_minute = serializers.DateTimeField()


class AliasMetricsBody(VersionMetricsBody):
    """Figures of one version through one alias; ``alias`` is empty for requests that named its number."""

    alias = serializers.CharField(allow_blank=True)


class SeriesBody(serializers.Serializer[Any]):
    """Points of one version, one for each of ``at``."""

    version = serializers.IntegerField(source="number")
    requests_per_s = serializers.ListField(child=serializers.FloatField())
    error_rate = serializers.ListField(child=serializers.FloatField(allow_null=True))
    p50_ms = serializers.ListField(child=serializers.FloatField(allow_null=True))
    p95_ms = serializers.ListField(child=serializers.FloatField(allow_null=True))


class HoldBody(serializers.Serializer[AliasHold]):
    """A canary that was taken out of its split without a person."""

    alias = serializers.CharField()
    version = serializers.IntegerField(source="number")
    reason = serializers.CharField()
    held_at = serializers.DateTimeField()
    resumed_at = serializers.DateTimeField(allow_null=True)
    split_before = serializers.DictField(child=serializers.IntegerField())
    split_after = serializers.DictField(child=serializers.IntegerField())


class MetricsBody(serializers.Serializer[AdapterMetrics]):
    """The last ``minutes``, a few seconds old at most. ``at`` are starts of points, seconds since the epoch."""

    minutes = serializers.IntegerField()
    step_minutes = serializers.IntegerField()
    total = FiguresBody()
    versions = VersionMetricsBody(many=True)
    aliases = AliasMetricsBody(many=True)
    at = serializers.ListField(child=serializers.IntegerField())
    series = SeriesBody(many=True)


class AdapterMetricsBody(MetricsBody):
    """With the newest holds."""

    holds = HoldBody(many=True)


class MetricsView(APIView):
    """Figures of one adapter."""

    scopes = {"GET": Scope.READ}

    @extend_schema(
        parameters=[OpenApiParameter("minutes", int, default=DEFAULT_MINUTES)],
        responses={200: AdapterMetricsBody, **ERRORS},
    )
    def get(self, request: Request, team: str, name: str) -> Response:
        """Requests, latency and errors by version and alias over the last `minutes`, up to seven days."""
        adapter = get_adapter(principal_of(request), team, name)
        found = read_metrics(adapter, minutes=read_minutes(request.query_params.get("minutes", str(DEFAULT_MINUTES))))
        holds = list(adapter.holds.all()[:20])
        # the stubs do not know that many=True takes a list
        rows = HoldBody(holds, many=True).data  # type: ignore[arg-type]
        return Response({**MetricsBody(found).data, "holds": rows})


def read_minutes(text: str) -> int:
    """A number of minutes. Raises ``ShoalError(INVALID_REQUEST)``."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:6]) <= MAX_MINUTES:
        raise ShoalError(Code.INVALID_REQUEST, f"`minutes` is a whole number from 1 to {MAX_MINUTES}.", param="minutes")
    return int(text)
