"""REST views of evaluations."""

from __future__ import annotations

from typing import Any, cast

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.accounts.api.permissions import principal_of
from controlplane.api.parsers import FolderMultiPartParser, StrictJSONParser
from loras.api.answers import CHANGES
from loras.api.attached import take_evaluation
from loras.evaluation.rows import EvaluationKind
from loras.evaluation.states import RunState
from loras.models import EvaluationRun
from loras.queries import get_adapter, get_version
from loras.services import attach_evaluation
from loras.uploads.handlers import raise_upload_error
from wire.codec import encode_json
from wire.registry import Scope


class MeasuredBody(serializers.Serializer[Any]):
    """One measured model. ``metrics`` is empty where ``problem`` says why."""

    role = serializers.CharField(help_text="`new`, `live` or `base`.")
    name = serializers.CharField()
    metrics = serializers.DictField(child=serializers.FloatField())
    problem = serializers.CharField(allow_blank=True)
    seconds = serializers.FloatField()


class EvaluationBody(serializers.Serializer[EvaluationRun]):
    """An evaluation of a version. ``decision`` says why it was promoted or not, when that was asked."""

    id = serializers.IntegerField()
    state = serializers.ChoiceField(choices=[state.value for state in RunState])
    kind = serializers.ChoiceField(choices=[kind.value for kind in EvaluationKind])
    rows = serializers.IntegerField(source="row_count")
    promote_if_better = serializers.BooleanField()
    results = MeasuredBody(many=True)
    decision = serializers.CharField(allow_blank=True)
    error = serializers.CharField(allow_blank=True)
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)


class EvaluationForm(serializers.Serializer[Any]):
    """Rows as a file (JSON lines), or as JSON objects."""

    evaluation = serializers.FileField(required=False, help_text="JSON lines.")
    rows = serializers.ListField(child=serializers.DictField(), required=False)
    promote_if_better = serializers.BooleanField(required=False, default=False)


class EvaluationListView(ListAPIView[EvaluationRun]):
    """Evaluations of one version."""

    scopes = {"GET": Scope.READ, "POST": Scope.PUSH}
    serializer_class = EvaluationBody

    def get_parsers(self) -> list[BaseParser]:
        return [FolderMultiPartParser(), StrictJSONParser()]

    def get_queryset(self) -> QuerySet[EvaluationRun]:
        if getattr(self, "swagger_fake_view", False):
            return EvaluationRun.objects.none()
        adapter = get_adapter(principal_of(self.request), self.kwargs["team"], self.kwargs["name"])
        return EvaluationRun.objects.filter(version=get_version(adapter, self.kwargs["number"]))

    @extend_schema(
        request={"multipart/form-data": EvaluationForm, "application/json": EvaluationForm},
        responses={202: EvaluationBody, **CHANGES},
    )
    def post(self, request: Request, team: str, name: str, number: int) -> Response:
        """Have the version, what is live now and the base model measured on rows of yours: retrieval pairs
        (`query`, `positive`), labelled texts (`text`, `label`) or prompts (`prompt`, `expected`)."""
        principal = principal_of(request)
        version = get_version(get_adapter(principal, team, name, scope=Scope.PUSH), number)
        data = cast("dict[str, Any]", request.data)
        raise_upload_error(request._request.META)
        form = EvaluationForm(data={key: data[key] for key in ("rows", "promote_if_better") if key in data})
        form.is_valid(raise_exception=True)
        rows = b"\n".join(encode_json(row) for row in form.validated_data.get("rows", []))
        run = attach_evaluation(
            version=version,
            data=rows or take_evaluation(request.FILES),
            promote_if_better=form.validated_data["promote_if_better"],
            actor=principal.user,
        )
        return Response(EvaluationBody(run).data, status=202)
