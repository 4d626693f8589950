"""REST views of teams and their members."""

from __future__ import annotations

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.accounts.api.permissions import principal_of
from controlplane.accounts.api.serializers import MemberBody, MemberForm, NewTeamForm, RoleForm, TeamBody
from controlplane.accounts.members import add_member, change_role, create_team, remove_member
from controlplane.accounts.models import Membership, Team
from controlplane.accounts.principal import ROLE_SCOPES
from controlplane.api.schema import ErrorBody
from wire.errors import Code, ShoalError
from wire.registry import Scope

ERRORS = {400: ErrorBody, 401: ErrorBody, 403: ErrorBody, 404: ErrorBody}
CHANGES = {**ERRORS, 409: ErrorBody}


class TeamListView(APIView):
    """Your teams."""

    # whoever is known may look at their own teams; making one takes a person
    scopes = {"GET": None, "POST": None}

    @extend_schema(responses={200: TeamBody(many=True), **ERRORS})
    def get(self, request: Request) -> Response:
        """Teams of the person or key that asks, with the scopes held in each."""
        grants = principal_of(request).grants
        teams = Team.objects.filter(pk__in=list(grants))
        return Response([{"name": team.name, "scopes": sorted(grants[team.pk])} for team in teams])

    @extend_schema(request=NewTeamForm, responses={201: TeamBody, **CHANGES})
    def post(self, request: Request) -> Response:
        """Make a team that you own."""
        principal = principal_of(request)
        if principal.user is None or principal.key is not None:
            raise ShoalError(Code.FORBIDDEN, "A key belongs to one team; a signed-in person makes another one.")
        form = NewTeamForm(data=request.data)
        form.is_valid(raise_exception=True)
        team = create_team(name=form.validated_data["name"], actor=principal.user)
        body = {"name": team.name, "scopes": sorted(ROLE_SCOPES[Membership.Role.OWNER])}
        return Response(body, status=201)


class MemberListView(ListAPIView[Membership]):
    """People of a team."""

    scopes = {"GET": Scope.READ, "POST": Scope.ADMIN}
    serializer_class = MemberBody

    def get_queryset(self) -> QuerySet[Membership]:
        if getattr(self, "swagger_fake_view", False):
            return Membership.objects.none()
        team = principal_of(self.request).team(self.kwargs["team"], Scope.READ)
        return Membership.objects.filter(team=team).select_related("user")

    @extend_schema(request=MemberForm, responses={201: MemberBody, **CHANGES})
    def post(self, request: Request, team: str) -> Response:
        """Add a person who has an account here."""
        principal = principal_of(request)
        owned = principal.team(team, Scope.ADMIN)
        form = MemberForm(data=request.data)
        form.is_valid(raise_exception=True)
        wanted = form.validated_data
        member = add_member(team=owned, username=wanted["user"], role=wanted["role"], actor=principal.user)
        return Response(MemberBody(member).data, status=201)


class MemberView(APIView):
    """One person of a team."""

    scopes = {"PATCH": Scope.ADMIN, "DELETE": None}

    @extend_schema(request=RoleForm, responses={200: MemberBody, **CHANGES})
    def patch(self, request: Request, team: str, username: str) -> Response:
        """Change the role; keys of theirs that may more are revoked."""
        principal = principal_of(request)
        owned = principal.team(team, Scope.ADMIN)
        form = RoleForm(data=request.data)
        form.is_valid(raise_exception=True)
        member = change_role(team=owned, username=username, role=form.validated_data["role"], actor=principal.user)
        return Response(MemberBody(member).data)

    @extend_schema(responses={204: None, **CHANGES})
    def delete(self, request: Request, team: str, username: str) -> Response:
        """Take them out of the team, with the keys they made in it. Everybody may leave; an owner takes out others."""
        principal = principal_of(request)
        leaving = principal.key is None and principal.user is not None and principal.user.get_username() == username
        owned = principal.team(team, Scope.READ if leaving else Scope.ADMIN)
        remove_member(team=owned, username=username, actor=principal.user)
        return Response(status=204)
