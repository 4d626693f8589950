"""What is resident, as telemetry tells it."""

from __future__ import annotations

import time

from wire.telemetry import NO_SLOT, ResidentAdapter, ResidentModel
from workers.engine.shelf import Shelf, ShelvedModel
from workers.packing.host import HostTier

_HOST_TOLD = 128
"""Adapters of host memory that are listed; a sample goes out each second."""


def list_models(shelf: Shelf) -> list[ResidentModel]:
    """Loaded models, base models and versions."""
    return [_model(one) for one in shelf.loaded()]


def list_adapters(shelf: Shelf, host: HostTier) -> list[ResidentAdapter]:
    """Adapters in slots, and the newest of those that host memory alone keeps."""
    slotted = _in_slots(shelf)
    models = {one.model.key: one.model for one in shelf.loaded()}
    in_host = [
        ResidentAdapter(
            digest=held.adapter.digest,
            model=models[held.model].record.id,
            size_bytes=held.adapter.size_bytes,
            slot=NO_SLOT,
            pinned=False,
            hits=held.hits,
            loaded=held.loaded,
            last_used=held.last_used,
            tier="host",
            version=shelf.version_of(held.adapter.digest),
        )
        for held in host.newest(_HOST_TOLD)
        if held.model in models and held.adapter.digest not in models[held.model].adapters.table
    ]
    return [*slotted, *in_host]


def _in_slots(shelf: Shelf) -> list[ResidentAdapter]:
    return [
        ResidentAdapter(
            digest=held.digest,
            model=one.model.record.id,
            size_bytes=held.size_bytes,
            slot=held.slot,
            pinned=held.pinned,
            hits=held.hits,
            loaded=held.loaded,
            last_used=held.last_used,
            version=shelf.version_of(held.digest),
        )
        for one in shelf.loaded()
        for held in one.model.adapters.table.residents()
    ]


def _model(shelved: ShelvedModel) -> ResidentModel:
    record, table = shelved.model.record, shelved.model.adapters.table
    since_epoch = time.time() - time.monotonic()
    ran = shelved.last_batch > shelved.loaded_at
    return ResidentModel(
        id=record.id,
        digest=record.digest,
        size_bytes=shelved.model.size_bytes,
        pinned=shelved.pinned,
        slots=table.slots,
        slots_used=len(table),
        version=record.id if record.is_version else None,
        hits=shelved.hits,
        loaded=since_epoch + shelved.loaded_at,
        last_used=since_epoch + shelved.last_batch if ran else None,
        dtype=str(next(shelved.model.kind.module.parameters()).dtype).removeprefix("torch."),
    )
