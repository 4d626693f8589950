"""Verbs of base models."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog
from django.contrib.auth.models import User
from django.db import transaction

from controlplane.events.services import enqueue_outbox, record_event
from fleet.models import BaseModel
from wire.codec import WireDecodeError, decode_json, encode_json
from wire.errors import Code, ErrorInfo, ShoalError
from wire.manifest import Manifest
from wire.subjects import MODELS_BUCKET

log = structlog.get_logger("fleet.base_models")

MANIFEST_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Registered:
    """``changed`` is false when the base model was registered just so already."""

    model: BaseModel
    changed: bool


def register_base_model(
    *, source: str, model_id: str, pool: str = "default", pinned: bool = True, actor: User | None = None
) -> Registered:
    """Make the manifest of the weights at ``source`` in a child process, store it and tell the data plane.

    ``source`` is ``package:<package>[/dir]``, ``path:<dir>`` or ``hub:<id>``. May be repeated. Raises ``ShoalError``:
    MODEL_UNLOADABLE with the child's last line, CONFLICT when ready versions exist for other weights of this id.
    """
    manifest = read_manifest(source=source, model_id=model_id)
    return store_base_model(manifest, pool=pool, pinned=pinned, actor=actor)


def store_base_model(manifest: Manifest, *, pool: str, pinned: bool, actor: User | None = None) -> Registered:
    """Store a manifest that was made and tell the data plane. Raises ``ShoalError(CONFLICT)``."""
    source, model_id = manifest.source, manifest.id
    values: dict[str, Any] = {
        "source": source,
        "pool": pool,
        "pinned": pinned,
        "digest": manifest.digest,
        "manifest": msgspec.json.decode(encode_json(manifest)),
    }
    with transaction.atomic():
        existing = BaseModel.objects.select_for_update().filter(model_id=model_id).first()
        if existing is not None and all(getattr(existing, name) == value for name, value in values.items()):
            return Registered(existing, changed=False)
        if existing is not None and existing.digest != manifest.digest and existing.adapters.exists():
            raise ShoalError(
                Code.CONFLICT,
                f"{model_id} is registered with the weights {existing.digest[:12]} and has "
                f"{existing.adapters.count()} adapters; {source} holds {manifest.digest[:12]}.",
                hint="Register the new weights under another id.",
            )
        model, _ = BaseModel.objects.update_or_create(model_id=model_id, defaults=values)
        record_event(
            kind="base_model.registered",
            subject=model_id,
            message=f"Base model {model_id} registered for pool {pool} from {source}",
            actor=actor,
            data={"digest": manifest.digest, "pool": pool, "pinned": pinned},
        )
        enqueue_outbox(bucket=MODELS_BUCKET, key=model_id)
    log.info("base model registered", model=model_id, digest=manifest.digest[:12], pool=pool)
    return Registered(model, changed=True)


def read_manifest(*, source: str, model_id: str) -> Manifest:
    """The manifest that ``python -m workers.manifest`` prints; this process loads no model code.

    Raises ``ShoalError(MODEL_UNLOADABLE)``.
    """
    command = [sys.executable, "-m", "workers.manifest", "--id", model_id, "--source", source]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=MANIFEST_TIMEOUT_S,
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    except subprocess.TimeoutExpired:
        raise ShoalError(
            Code.MODEL_UNLOADABLE, f"The manifest of {source} was not made within {MANIFEST_TIMEOUT_S} s."
        ) from None
    if done.returncode != 0:
        raise ShoalError(
            Code.MODEL_UNLOADABLE,
            f"The manifest of {source} cannot be made: {_last_words(done.stderr)}",
            param="source",
        )
    try:
        return decode_json(done.stdout, Manifest)
    except WireDecodeError as error:
        raise ShoalError(
            Code.MODEL_UNLOADABLE, f"workers.manifest printed no manifest for {source}: {error}", param="source"
        ) from error


def _last_words(stderr: bytes) -> str:
    """The child's own error, or the last line it wrote before it died."""
    last = (stderr.strip().splitlines() or [b"it said nothing"])[-1]
    try:
        return decode_json(last, ErrorInfo).message
    except WireDecodeError:
        return last.decode(errors="replace")[:400]
