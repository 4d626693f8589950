"""One evaluation from its rows to its table: base, live and new version, asked through the gateway."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from controlplane.accounts.services import issue_api_key, revoke_api_key
from loras.evaluation.asking import CannotMeasure, GatewayClient, measure
from loras.evaluation.decision import Measured, Role, decide
from loras.evaluation.rows import EvaluationKind, EvaluationRows, parse_rows
from loras.models import Alias, EvaluationRun
from loras.services.evaluations import RUN_TIMEOUT_S, RunClaim, finish_evaluation
from wire.names import LIVE
from wire.registry import Scope

# the key and the version reach the gateway within seconds; a cold model may take this long
PATIENCE_S = 60.0
KEY_LIFETIME = timedelta(minutes=15)


def run_claimed(claim: RunClaim) -> bool:
    """Measure, decide and store; ``False`` when the claim was lost meanwhile."""
    run = claim.run
    rows = parse_rows(run.rows.encode())
    with _client(run) as client:
        lines = [_measured(client, role, name, rows) for role, name in _models(run)]
    return finish_evaluation(claim=claim, lines=lines, decision=decide(EvaluationKind(run.kind), lines))


def _models(run: EvaluationRun) -> list[tuple[Role, str]]:
    """What is measured, the new version first: when time runs out, it is the one that counts."""
    version, adapter = run.version, run.version.adapter
    found = [(Role.NEW, str(version))]
    live = Alias.objects.filter(adapter=adapter, name=LIVE).first()
    if live is not None:
        heaviest = max(live.split, key=lambda number: (live.split[number], int(number)))
        if int(heaviest) != version.number:
            found.append((Role.LIVE, f"{adapter.full_name}@{heaviest}"))
    if adapter.base_model is not None:
        found.append((Role.BASE, adapter.base_model.model_id))
    return found


def _measured(client: GatewayClient, role: Role, name: str, rows: EvaluationRows) -> Measured:
    began = time.monotonic()
    try:
        found = measure(client, name, rows)
    except CannotMeasure as error:
        return Measured(role, name, {}, str(error)[:300], round(time.monotonic() - began, 2))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        return Measured(role, name, {}, f"the gateway's answer cannot be read: {error!r}"[:300])
    return Measured(role, name, found, "", round(time.monotonic() - began, 2))


@contextmanager
def _client(run: EvaluationRun) -> Iterator[GatewayClient]:
    """A client with a key of the team that lives as long as the measurement."""
    issued = issue_api_key(
        team=run.version.adapter.team,
        name=f"evaluation {run.pk}",
        scopes=[Scope.INFER],
        expires_at=timezone.now() + KEY_LIFETIME,
    )
    now = time.monotonic()
    try:
        yield GatewayClient(settings.SHOAL.public_gateway_url, issued.secret, now + RUN_TIMEOUT_S, now + PATIENCE_S)
    finally:
        revoke_api_key(key=issued.key)
