"""One probe: base and adapter rows in one packed batch, against PEFT's model on the same rows one by one."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wire.errors import ShoalError
from wire.jobs import EmbeddingInputs, Task
from wire.registry import ModelRecord
from wire.reports import Row
from wire.validation import ProbeReply, ProbeRequest
from workers.models import LoadedModel, ModelOptions, load_model
from workers.models.pooling import PoolingRule
from workers.models.protocol import Vectors
from workers.models.sentence_files import read_sentence_settings
from workers.packing.artifact import AdapterArtifact, read_artifact
from workers.probe_rows import Measured, failure, judge
from workers.sources import resolve_source, weights_digest

TEXTS = [
    "A shoal moves as one.",
    "how do I reset the password of my account?",
    "The invoice was paid twice; please refund the second payment to the card that was used.",
    "def area(radius: float) -> float: return 3.14159 * radius ** 2",
    "Zürich, São Paulo, 東京",
    "Adapters change few weights of a model. " * 3,
]
_SLOTS = 2


@dataclass(frozen=True, slots=True)
class ProbeBase:
    """A base model twice: as the worker serves it, and plain for PEFT. ``alone`` are the plain model's vectors."""

    served: LoadedModel
    plain: Any
    pooling: PoolingRule
    rows: list[list[int]]
    alone: Vectors


def load_base(model_id: str, source: str, digest: str) -> ProbeBase:
    """Both copies, and the plain one's vectors. An empty ``digest`` is taken from the files.

    Raises ``ShoalError(MODEL_UNLOADABLE)``.
    """
    from transformers import AutoModel

    torch.set_num_threads(1)
    path = resolve_source(source)
    record = ModelRecord(
        id=model_id,
        digest=digest or weights_digest(path),
        source=source,
        tasks=[Task.EMBEDDINGS],
        pool="probe",
        max_tokens=0,
        dimension=None,
        created=0,
    )
    served = load_model(record, options=ModelOptions(device="cpu", slots=_SLOTS, max_rank=1 << 16))
    plain = AutoModel.from_pretrained(str(path), dtype=torch.float32, local_files_only=True).eval()
    pooling = read_sentence_settings(path).rule
    rows = [row.ids for row in served.prepare(Task.EMBEDDINGS, EmbeddingInputs(texts=TEXTS)).rows]
    _warm(served)
    return ProbeBase(served, plain, pooling, rows, _one_by_one(plain, pooling, rows))


def probe_adapter(base: ProbeBase, request: ProbeRequest) -> ProbeReply:
    """The verdict on one adapter; what cannot be loaded by either side is a verdict too."""
    started = time.monotonic()
    rows, measured = _probe(base, request)
    return ProbeReply(
        rows=rows,
        max_difference=measured.difference if measured else None,
        effect=measured.effect if measured else None,
        seconds=round(time.monotonic() - started, 3),
    )


def _probe(base: ProbeBase, request: ProbeRequest) -> tuple[list[Row], Measured | None]:
    try:
        artifact = read_artifact(Path(request.canonical_path), expected_digest=request.digest)
        in_mix, adapted = _serve(base.served, request.digest, artifact)
    except ShoalError as error:
        return [failure("The worker cannot load it", str(error))], None
    if not (np.isfinite(adapted).all() and np.isfinite(in_mix).all()):
        return judge(request, Measured.of_nonfinite(adapted, in_mix)), None
    try:
        expected = _one_by_one(_with_peft(base.plain, request.peft_dir), base.pooling, base.rows)
    except (ValueError, RuntimeError, KeyError, TypeError, OSError) as error:
        return [failure("PEFT cannot load it", str(error))], None
    measured = Measured.compare(adapted=adapted, in_mix=in_mix, expected=expected, alone=base.alone)
    return judge(request, measured), measured


def _serve(served: LoadedModel, digest: str, artifact: AdapterArtifact) -> tuple[Vectors, Vectors]:
    """One packed batch with every text twice: (vectors without, vectors with the adapter)."""
    served.load_adapter(digest, artifact)
    try:
        texts = [text for text in TEXTS for _ in range(2)]
        # base and adapter take turns, so that rows of both kinds lie beside each other
        vectors = served.embed(texts, [None, digest] * len(TEXTS))
    finally:
        served.unload_adapter(digest)
    return vectors[0::2], vectors[1::2]


def _warm(served: LoadedModel) -> None:
    """Do once in a server what every forked child would have to do again: imports of seconds, first-use set-up."""
    from peft import LoraConfig, inject_adapter_in_model

    inject_adapter_in_model(LoraConfig(target_modules=["0"]), torch.nn.Sequential(torch.nn.Linear(2, 2)))
    served.embed(TEXTS[:1], [None])


def _with_peft(plain: Any, folder: str) -> Any:
    from peft import PeftModel

    with warnings.catch_warnings():
        # of the libraries among themselves; nothing an uploader or an operator can act on
        warnings.simplefilter("ignore", FutureWarning)
        return PeftModel.from_pretrained(plain, folder, is_trainable=False).eval()


def _one_by_one(model: Any, pooling: PoolingRule, rows: list[list[int]]) -> Vectors:
    """Vectors of rows that never see each other nor any padding."""
    vectors = []
    with torch.inference_mode():
        for row in rows:
            ids = torch.tensor([row])
            mask = torch.ones_like(ids)
            hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
            vectors.append(pooling.apply(hidden, mask).to(torch.float32).numpy()[0])
    return np.stack(vectors)
