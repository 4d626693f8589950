"""Records of base models as gateways and sidecars read them."""

from __future__ import annotations

from fleet.models import BaseModel
from wire.codec import decode_json, encode_json
from wire.manifest import Manifest
from wire.registry import ModelRecord


def manifest_of(model: BaseModel) -> Manifest:
    """The stored manifest, typed. Raises ``WireDecodeError`` when it was written by an incompatible release."""
    return decode_json(encode_json(model.manifest), Manifest)


def model_records(ids: list[str] | None = None) -> dict[str, ModelRecord]:
    """Records by model id: of all base models, or of those among ``ids``."""
    rows = BaseModel.objects.all()
    if ids is not None:
        rows = rows.filter(model_id__in=ids)
    return {row.model_id: _record(row) for row in rows}


def _record(model: BaseModel) -> ModelRecord:
    manifest = manifest_of(model)
    return ModelRecord(
        id=model.model_id,
        digest=model.digest,
        source=model.source,
        tasks=manifest.tasks,
        pool=model.pool,
        max_tokens=manifest.max_tokens,
        dimension=manifest.dimension,
        created=int(model.created_at.timestamp()),
        pinned=model.pinned,
        size_bytes=manifest.size_bytes,
    )
