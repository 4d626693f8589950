"""``dead-jobs/``: what left the queue without an answer."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.accounts.api.permissions import principal_of
from controlplane.api.schema import ErrorBody
from fleet.dead_jobs import DeadRow, Replayed, list_dead_jobs, replay_dead_job
from fleet.viewers import viewer_of
from wire.errors import Code, ShoalError
from wire.registry import Scope

ERRORS = {401: ErrorBody, 403: ErrorBody, 503: ErrorBody}


class DeadErrorBody(serializers.Serializer[Any]):
    """Why it died."""

    code = serializers.CharField()
    message = serializers.CharField()


class DeadJobBody(serializers.Serializer[DeadRow]):
    """A dead job without its inputs. ``died`` is seconds since the epoch, as is ``refused_until``: until then its
    version's jobs are refused on that machine, since they ended workers."""

    sequence = serializers.IntegerField()
    job = serializers.CharField()
    task = serializers.CharField()
    pool = serializers.CharField()
    model = serializers.CharField()
    version = serializers.CharField(allow_blank=True)
    team = serializers.CharField(allow_blank=True)
    tokens = serializers.IntegerField()
    error = DeadErrorBody()
    deliveries = serializers.IntegerField()
    machine = serializers.CharField()
    died = serializers.FloatField()
    readable = serializers.BooleanField()
    refused_until = serializers.FloatField(allow_null=True)


class DeadJobsBody(serializers.Serializer[Any]):
    """The newest, newest first, at most 100."""

    results = DeadJobBody(many=True)


class ReplayedBody(serializers.Serializer[Replayed]):
    """What came of a replay within 20 s."""

    job = serializers.CharField()
    answered = serializers.BooleanField()
    ok = serializers.BooleanField()
    outcome = serializers.CharField()


class DeadJobsView(APIView):
    """Dead jobs of your teams; of all teams for who operates the fleet."""

    scopes = {"GET": Scope.READ}

    @extend_schema(responses={200: DeadJobsBody, **ERRORS})
    def get(self, request: Request) -> Response:
        """Jobs that left the queue without an answer, with the reason."""
        viewer = viewer_of(principal_of(request))
        rows = list_dead_jobs(teams=None if viewer.operator else viewer.teams)
        # the stubs do not know that many=True takes a list
        return Response({"results": DeadJobBody(rows, many=True).data})  # type: ignore[arg-type]


class ReplayView(APIView):
    """One dead job."""

    scopes = {"POST": Scope.READ}

    @extend_schema(request=None, responses={200: ReplayedBody, 404: ErrorBody, 409: ErrorBody, **ERRORS})
    def post(self, request: Request, sequence: int) -> Response:
        """Publish it anew with a fresh deadline and wait for what a worker says. For operators."""
        principal = principal_of(request)
        if not principal.operator:
            raise ShoalError(
                Code.FORBIDDEN,
                "Replays use every team's workers: this takes a staff member, or a staff member's key with scope "
                "`admin`.",
            )
        return Response(ReplayedBody(replay_dead_job(sequence=sequence, actor=principal.user)).data)
