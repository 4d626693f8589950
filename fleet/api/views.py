"""REST views of base models, pools and workers."""

from __future__ import annotations

from django.contrib.auth.models import User
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.accounts.api.permissions import principal_of
from fleet.api import serializers
from fleet.models import BaseModel
from fleet.operations import drain_worker, evict_resident, pin_resident, resume_worker
from fleet.queries import list_pools, read_minutes
from fleet.rows import WorkerRow, find_worker, list_workers
from fleet.viewers import Viewer, viewer_of
from wire.errors import Code, ShoalError
from wire.registry import Scope

LONGEST_HOURS = 24 * 7


class FleetView(APIView):
    scopes = {"GET": Scope.READ, "POST": Scope.READ}

    def viewer(self, request: Request) -> Viewer:
        return viewer_of(principal_of(request))

    def worker(self, request: Request, key: str) -> WorkerRow:
        row = find_worker(key, teams=self.viewer(request).teams)
        if row is None:
            raise ShoalError(
                Code.NOT_FOUND, f"There is no worker {key[:200]!r}.", hint="GET /api/v1/workers/ lists their ids."
            )
        return row


class BaseModelsView(FleetView):
    @extend_schema(responses=serializers.BaseModelSerializer(many=True))
    def get(self, request: Request) -> Response:
        """Base models that adapters can be made for."""
        return Response(serializers.BaseModelSerializer(BaseModel.objects.all(), many=True).data)


class PoolsView(FleetView):
    @extend_schema(responses=serializers.PoolSerializer(many=True))
    def get(self, request: Request) -> Response:
        """Pools with their base models and what serves them now."""
        workers = list_workers(teams=frozenset()).workers
        return Response(serializers.PoolSerializer(list_pools(workers), many=True).data)


class WorkersView(FleetView):
    @extend_schema(responses=serializers.WorkersSerializer)
    def get(self, request: Request) -> Response:
        """Every worker with its last state. The socket `/ws/fleet/` sends the same once a second."""
        found = list_workers(teams=self.viewer(request).teams)
        # the stubs do not know that many=True takes a list
        rows = serializers.WorkerSerializer(found.workers, many=True).data  # type: ignore[arg-type]
        return Response({"at": found.at, "live_available": found.available, "results": rows})


class WorkerView(FleetView):
    @extend_schema(responses=serializers.WorkerSerializer)
    def get(self, request: Request, key: str) -> Response:
        """One worker."""
        return Response(serializers.WorkerSerializer(self.worker(request, key)).data)


class MinutesView(FleetView):
    @extend_schema(responses=serializers.MinutesSerializer, parameters=[OpenApiParameter("hours", int, default=24)])
    def get(self, request: Request, key: str) -> Response:
        """One-minute roll-ups of a worker, up to seven days."""
        text = request.query_params.get("hours", "24")
        if not text.isascii() or not text.isdigit() or not 1 <= int(text[:6]) <= LONGEST_HOURS:
            raise ShoalError(
                Code.INVALID_REQUEST, f"hours must be a whole number from 1 to {LONGEST_HOURS}.", param="hours"
            )
        row = self.worker(request, key)
        return Response(serializers.MinutesSerializer(read_minutes(row.key, hours=int(text))).data)


class OperateView(FleetView):
    def allowed_worker(self, request: Request, key: str) -> tuple[WorkerRow, User | None]:
        if not self.viewer(request).operator:
            raise ShoalError(
                Code.FORBIDDEN,
                "Workers serve every team: this takes a staff member, or a staff member's key with scope `admin`.",
            )
        return self.worker(request, key), principal_of(request).user


class DrainView(OperateView):
    @extend_schema(request=None, responses={202: serializers.WorkerSerializer})
    def post(self, request: Request, key: str) -> Response:
        """Have the worker finish what it received and ask for nothing more."""
        row, actor = self.allowed_worker(request, key)
        drain_worker(row=row, actor=actor)
        return Response(serializers.WorkerSerializer(row).data, status=202)


class ResumeView(OperateView):
    @extend_schema(request=None, responses={202: serializers.WorkerSerializer})
    def post(self, request: Request, key: str) -> Response:
        """Take a drain back."""
        row, actor = self.allowed_worker(request, key)
        resume_worker(row=row, actor=actor)
        return Response(serializers.WorkerSerializer(row).data, status=202)


class PinView(OperateView):
    @extend_schema(request=serializers.PinForm, responses={204: None})
    def post(self, request: Request, key: str) -> Response:
        """Keep a resident adapter or model on the worker, or let it go again with `pinned` false."""
        row, actor = self.allowed_worker(request, key)
        form = serializers.PinForm(data=request.data)
        form.is_valid(raise_exception=True)
        pin_resident(row=row, actor=actor, **form.validated_data)
        return Response(status=204)


class EvictView(OperateView):
    @extend_schema(request=serializers.ResidentForm, responses={204: None})
    def post(self, request: Request, key: str) -> Response:
        """Free a resident adapter or model; the worker refuses while it is in use."""
        row, actor = self.allowed_worker(request, key)
        form = serializers.ResidentForm(data=request.data)
        form.is_valid(raise_exception=True)
        evict_resident(row=row, actor=actor, **form.validated_data)
        return Response(status=204)
