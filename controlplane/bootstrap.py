"""First start: the admin, a team, keys, and the base models that come as packages. May be repeated."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import structlog
from django.contrib.auth.models import User
from django.db import transaction

from controlplane.accounts.models import ApiKey, Team
from controlplane.accounts.services import create_team_for, issue_api_key
from controlplane.packaged_models import PACKAGED_MODELS
from fleet.models import BaseModel
from fleet.services import read_manifest, store_base_model
from wire.errors import ShoalError
from wire.registry import Scope

log = structlog.get_logger("controlplane.bootstrap")

ADMIN = "admin"
API_KEY_NAME = "first key"
MACHINE_KEY_NAME = "embedded machine"
API_SCOPES = [Scope.READ, Scope.PUSH, Scope.INFER, Scope.ADMIN]


def bootstrap_site() -> dict[str, str]:
    """Make what is missing: :func:`bootstrap_accounts`, whose secrets are returned, and :func:`bootstrap_models`."""
    made = bootstrap_accounts()
    bootstrap_models()
    return made


def bootstrap_accounts(keep: Callable[[dict[str, str]], None] | None = None) -> dict[str, str]:
    """The secrets that were made now (``username`` with ``password``, ``api_key``, ``machine_key``), each of which
    nobody can read later.

    ``keep`` gets them before they are committed: a crash then leaves secrets that never counted, not lost ones.
    """
    made: dict[str, str] = {}
    with transaction.atomic():
        admin = User.objects.select_for_update().filter(is_superuser=True).order_by("pk").first()
        if admin is None:
            password = secrets.token_urlsafe(15)
            admin = User.objects.create_superuser(_free_username(), password=password)
            made |= {"username": admin.username, "password": password}
        team = create_team_for(user=admin)
        if not _has_key(team, API_KEY_NAME):
            made["api_key"] = issue_api_key(team=team, name=API_KEY_NAME, scopes=API_SCOPES, actor=admin).secret
        if not _has_key(team, MACHINE_KEY_NAME):
            issued = issue_api_key(team=team, name=MACHINE_KEY_NAME, scopes=[Scope.MACHINE], actor=admin)
            made["machine_key"] = issued.secret
        if keep is not None:
            keep(made)
    return made


def bootstrap_models() -> None:
    """Register the packaged base models that are installed and unknown.

    One that serves only on demand may be missing: it is left out with a log line. Raises
    ``ShoalError(MODEL_UNLOADABLE)`` for the others.
    """
    missing = [
        model
        for model in PACKAGED_MODELS
        if find_spec(model.package) is not None
        and not BaseModel.objects.filter(model_id=model.model_id, source=model.source).exists()
    ]
    # each manifest is made in a child that takes seconds: side by side, so that a first start waits for the slowest
    with ThreadPoolExecutor(max_workers=len(PACKAGED_MODELS)) as pool:
        manifests = [pool.submit(read_manifest, source=model.source, model_id=model.model_id) for model in missing]
    for model, manifest in zip(missing, manifests, strict=True):
        try:
            store_base_model(manifest.result(), pool=model.pool, pinned=model.pinned)
        except ShoalError as error:
            if model.pinned:
                raise
            log.warning("base model left out", model=model.model_id, error=error.info.message)


def _free_username() -> str:
    return ADMIN if not User.objects.filter(username=ADMIN).exists() else f"{ADMIN}-{secrets.token_hex(3)}"


def _has_key(team: Team, name: str) -> bool:
    return ApiKey.objects.usable().filter(team=team, name=name).exists()
