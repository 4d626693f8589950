"""``GET /v1/models`` and ``/v1/models/{id}``: base models and the caller's team's adapters."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.types import Receive, Scope, Send

from gateway.answers import Headers, answer_json
from gateway.endpoint import Endpoint
from gateway.plane import Plane
from gateway.routing import visible_names
from wire.errors import Code, ShoalError
from wire.names import LIVE, nearest_names
from wire.registry import AdapterRecord, KeyRecord, ModelRecord
from wire.registry import Scope as KeyScope

OWNER = "shoal"


class Details(msgspec.Struct, frozen=True):
    """What OpenAI's object has no place for. ``digest`` is the base model's, or the live version's if there is one."""

    kind: str
    base: str
    tasks: list[str]
    digest: str | None
    dimension: int | None
    max_tokens: int | None
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

    async def handle(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        key: KeyRecord,
        request_headers: Mapping[bytes, bytes],
        headers: Headers,
    ) -> None:
        plane = self.gateway.plane()
        wanted = scope["path_params"].get("model")
        if wanted:
            await answer_json(send, _one(plane, wanted, key.team), headers)
            return
        cards = [_base_card(model) for _, model in sorted(plane.models.records.items())]
        cards += [
            _adapter_card(adapter, plane.models.records.get(adapter.base_model))
            for _, adapter in sorted(plane.adapters.records.items())
            if adapter.team == key.team
        ]
        await answer_json(send, ModelList(cards), headers)


def _one(plane: Plane, wanted: str, team: str) -> ModelCard:
    model = plane.models.records.get(wanted)
    if model is not None:
        return _base_card(model)
    adapter = plane.adapters.records.get(wanted)
    if adapter is not None and adapter.team == team:
        return _adapter_card(adapter, plane.models.records.get(adapter.base_model))
    near = nearest_names(wanted[:200], visible_names(team, plane.models.records, plane.adapters.records)[:1000])
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


def _adapter_card(adapter: AdapterRecord, base: ModelRecord | None) -> ModelCard:
    live = adapter.aliases.get(LIVE, {})
    # A split has no one digest; the answer's x-shoal-digest header says which version served.
    only = adapter.versions.get(next(iter(live))) if len(live) == 1 else None
    return ModelCard(
        id=adapter.name,
        created=max((version.created for version in adapter.versions.values()), default=0),
        owned_by=adapter.team,
        shoal=Details(
            kind="adapter",
            base=adapter.base_model,
            tasks=[] if base is None else [task.value for task in base.tasks],
            digest=None if only is None else only.digest,
            dimension=None if base is None else base.dimension,
            max_tokens=None if base is None else base.max_tokens,
            versions=sorted(adapter.versions),
            aliases=adapter.aliases,
        ),
    )
