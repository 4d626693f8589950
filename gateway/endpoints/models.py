"""``GET /v1/models`` and ``/v1/models/{id}``: base models and the caller's team's adapters."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gateway.answers import answer_json
from gateway.endpoints.endpoint import Endpoint, Exchange
from gateway.plane import Plane
from gateway.routing import visible_names
from wire.errors import Code, ShoalError
from wire.names import LIVE, nearest_names
from wire.registry import AdapterRecord, Mode, ModelRecord, VersionRecord
from wire.registry import Scope as KeyScope

OWNER = "shoal"


class Details(msgspec.Struct, frozen=True):
    """What OpenAI's object has no place for. ``digest`` is the base model's, or the live version's if there is one.

    ``tasks``, ``mode``, ``dimension`` and ``max_tokens`` of an adapter are those of its live version, or of its newest
    when none or several are live.
    """

    kind: str
    base: str
    tasks: list[str]
    digest: str | None
    dimension: int | None
    max_tokens: int | None
    mode: str | None = None
    versions: list[int] = []
    aliases: dict[str, dict[int, int]] = {}


class ModelCard(msgspec.Struct, frozen=True):
    """One entry of OpenAI's model list."""

    id: str
    created: int
    owned_by: str
    shoal: Details
    object: str = "model"


class ModelList(msgspec.Struct, frozen=True):
    """OpenAI's model list."""

    data: list[ModelCard]
    object: str = "list"


class Models(Endpoint):
    """All names that exist for the caller, or one of them when the path names it."""

    name = "models"
    scopes = (KeyScope.INFER, KeyScope.READ)

    async def handle(self, exchange: Exchange) -> None:
        plane = self.gateway.plane()
        team = exchange.key.team
        wanted = exchange.scope["path_params"].get("model")
        if wanted:
            await answer_json(exchange.send, _one(plane, wanted, team), exchange.headers)
            return
        models = plane.models.records
        cards = [_base_card(model) for _, model in sorted(models.items()) if not model.is_version]
        cards += [
            _adapter_card(adapter, models)
            for _, adapter in sorted(plane.adapters.records.items())
            if adapter.team == team
        ]
        await answer_json(exchange.send, ModelList(cards), exchange.headers)


def _one(plane: Plane, wanted: str, team: str) -> ModelCard:
    models = plane.models.records
    model = models.get(wanted)
    if model is not None and not model.is_version:
        return _base_card(model)
    adapter = plane.adapters.records.get(wanted)
    if adapter is not None and adapter.team == team:
        return _adapter_card(adapter, models)
    near = nearest_names(wanted[:200], visible_names(team, models, plane.adapters.records)[:1000])
    raise ShoalError(
        Code.MODEL_NOT_FOUND,
        f"There is no model or adapter {wanted[:200]!r}.",
        param="model",
        hint=f"Near names: {', '.join(near)}." if near else "GET /v1/models lists the names that exist.",
    )


def _base_card(model: ModelRecord) -> ModelCard:
    return ModelCard(
        id=model.id,
        created=model.created,
        owned_by=OWNER,
        shoal=Details(
            kind="base",
            base=model.id,
            tasks=[task.value for task in model.tasks],
            digest=model.digest,
            dimension=model.dimension,
            max_tokens=model.max_tokens,
        ),
    )


def _adapter_card(adapter: AdapterRecord, models: Mapping[str, ModelRecord]) -> ModelCard:
    live = adapter.aliases.get(LIVE, {})
    # A split has no one digest; the answer's x-shoal-digest header says which version served.
    only = adapter.versions.get(next(iter(live))) if len(live) == 1 else None
    shown = only or max(adapter.versions.values(), key=lambda version: version.number, default=None)
    weights = None if shown is None else models.get(_weights_name(adapter, shown))
    tasks = (shown.tasks if shown is not None else []) or (weights.tasks if weights is not None else [])
    return ModelCard(
        id=adapter.name,
        created=max((version.created for version in adapter.versions.values()), default=0),
        owned_by=adapter.team,
        shoal=Details(
            kind="adapter",
            base=adapter.base_model,
            tasks=[task.value for task in tasks],
            digest=None if only is None else only.digest,
            dimension=None if weights is None else weights.dimension,
            max_tokens=None if weights is None else weights.max_tokens,
            mode=None if shown is None else shown.mode.value,
            versions=sorted(adapter.versions),
            aliases=adapter.aliases,
        ),
    )


def _weights_name(adapter: AdapterRecord, version: VersionRecord) -> str:
    return adapter.base_model if version.mode is Mode.PACKED else f"{adapter.name}@{version.number}"
