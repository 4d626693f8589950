"""HTML pages of teams and their people."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from controlplane.accounts.members import add_member, change_role, create_team, remove_member
from controlplane.accounts.models import ApiKey, Membership, Team
from controlplane.accounts.principal import Principal, allows
from controlplane.pages import page, refusal_text
from wire.errors import Code, ShoalError
from wire.registry import Scope

ROLE_WORDS = (
    ("owner", "Owner", "everything, and people, keys, deletions"),
    ("member", "Member", "uploads, moves aliases, rolls back"),
    ("viewer", "Viewer", "looks and asks"),
)


@require_http_methods(["GET", "POST"])
@page
def teams(request: HttpRequest, principal: Principal) -> HttpResponse:
    """Your teams; by POST a new one."""
    if request.method == "POST" and principal.user is not None:
        team = create_team(name=request.POST.get("name", "").strip(), actor=principal.user)
        messages.success(request, f"The team {team.name} is yours.")
        return redirect("team", team.name)
    rows = Team.objects.filter(pk__in=principal.team_ids)
    roles = dict(Membership.objects.filter(user=principal.user).values_list("team_id", "role"))
    shown = [(team, roles.get(team.pk, ""), team.memberships.count(), team.adapters.count()) for team in rows]
    return render(request, "accounts/teams.html", {"section": "teams", "rows": shown})


@require_GET
@page
def team(request: HttpRequest, principal: Principal, name: str) -> HttpResponse:
    """People of one team."""
    found = principal.team(name, Scope.READ)
    shown = {
        "section": "teams",
        "team": found,
        "members": found.memberships.select_related("user").order_by("user__username"),
        "owns": allows(principal.grants[found.pk], Scope.ADMIN),
        "roles": ROLE_WORDS,
    }
    return render(request, "accounts/team.html", shown)


@require_POST
@page
def change_member(request: HttpRequest, principal: Principal, name: str) -> HttpResponse:
    """Adds a person, changes their role, or takes them out; what is refused is said on the team's page."""
    username, role = request.POST.get("user", "").strip(), request.POST.get("role", "")
    leaving = principal.user is not None and principal.user.get_username() == username and role == "none"
    found = principal.team(name, Scope.READ if leaving else Scope.ADMIN)
    try:
        done = _change(found, username, role, request.POST.get("new") == "true", principal)
    except ShoalError as error:
        # a person nobody knows is said where the name was typed
        if error.code is Code.FORBIDDEN:
            raise
        messages.error(request, refusal_text(error))
    else:
        messages.success(request, done)
    return redirect("teams") if leaving else redirect("team", name)


@require_GET
@page
def ask_removal(request: HttpRequest, principal: Principal, name: str, username: str) -> HttpResponse:
    """Asks before a person leaves or is taken out, with what that costs them; the form posts to ``change_member``."""
    leaving = principal.user is not None and principal.user.get_username() == username
    found = principal.team(name, Scope.READ if leaving else Scope.ADMIN)
    leaver = get_object_or_404(found.memberships.select_related("user"), user__username=username)
    keys = ApiKey.objects.usable().filter(team=found, created_by=leaver.user).count()
    shown = {"section": "teams", "team": found, "member": leaver, "leaving": leaving, "keys": keys}
    return render(request, "accounts/remove_member.html", shown)


def _change(team: Team, username: str, role: str, new: bool, principal: Principal) -> str:
    if role == "none":
        remove_member(team=team, username=username, actor=principal.user)
        return f"{username} left {team.name}; the keys they made in it are revoked."
    if new:
        add_member(team=team, username=username, role=role, actor=principal.user)
        return f"{username} joined {team.name} as {role}."
    change_role(team=team, username=username, role=role, actor=principal.user)
    return f"{username} is {role} of {team.name}."
