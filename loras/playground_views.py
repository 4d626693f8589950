"""The playground of an adapter: base and adapter side by side, by the person's own short-lived key."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from controlplane.accounts.models import Team
from controlplane.accounts.principal import Principal
from controlplane.accounts.services import find_usable_key, issue_api_key
from controlplane.pages import page
from fleet.registry import manifest_of
from loras.models import Adapter
from loras.page_queries import page_of
from loras.page_rows import AdapterPage
from loras.playground import Answer, Question, ask_model, question_of
from loras.queries import get_adapter
from loras.views import render_tab
from wire.jobs import Task
from wire.registry import Scope

KEY_LIFETIME = timedelta(hours=12)
# no request with a key that ends while it is asked
KEY_SPARE_S = 120


@require_http_methods(["GET", "POST"])
@page
def playground(request: HttpRequest, principal: Principal, team: str, name: str) -> HttpResponse:
    """The form; by POST the answers of both below it."""
    row = get_adapter(principal, team, name, scope=Scope.INFER)
    adapter = page_of(principal, row)
    tasks = tasks_of(row, adapter)
    given = request.POST
    question = question_of(
        given.get("task", tasks[0] if tasks else ""), given.get("text", ""), given.get("documents", ""), tasks
    )
    answers = _ask_both(request, principal, row, adapter, question) if question is not None else []
    shown = {
        "tasks": tasks,
        "chosen": given.get("task") or (tasks[0] if tasks else ""),
        "given": {"text": given.get("text", ""), "documents": given.get("documents", "")},
        "incomplete": request.method == "POST" and question is None,
        "answers": answers,
        "with_documents": [Task.EMBEDDINGS.value, Task.RERANK.value],
    }
    return render_tab(request, adapter, "playground", **shown)


def tasks_of(row: Adapter, adapter: AdapterPage) -> list[Task]:
    """What the shown version can be asked: its own tasks, else its base model's."""
    facts = adapter.shown.facts if adapter.shown else None
    if facts is not None and facts.tasks:
        return list(facts.tasks)
    return list(manifest_of(row.base_model).tasks) if row.base_model is not None else []


def _ask_both(
    request: HttpRequest, principal: Principal, row: Adapter, adapter: AdapterPage, question: Question
) -> list[Answer]:
    secret, url = _own_key(request, principal, row.team), settings.SHOAL.public_gateway_url
    pinned = f"{adapter.full_name}@{adapter.shown.number}" if adapter.shown else ""
    model = adapter.full_name if adapter.aliases else pinned
    models = [name for name in (adapter.base_model, model) if name]
    with ThreadPoolExecutor(len(models) or 1) as both:
        return list(both.map(lambda name: ask_model(url, secret, name, question), models))


def _own_key(request: HttpRequest, principal: Principal, team: Team) -> str:
    """A key of this session for this team, which ends by itself; its secret is kept in the session alone."""
    kept = request.session.get("playground", {}).get(team.name)
    if kept and kept["until"] > time.time() + KEY_SPARE_S and find_usable_key(kept["secret"]) is not None:
        return str(kept["secret"])
    ends = timezone.now() + KEY_LIFETIME
    issued = issue_api_key(
        team=team, name="playground", scopes=[Scope.INFER], actor=principal.user, expires_at=ends,
        granted=principal.grantable(team.pk),
    )  # fmt: skip
    keys = request.session.get("playground", {})
    request.session["playground"] = keys | {team.name: {"secret": issued.secret, "until": ends.timestamp()}}
    return issued.secret
