"""One probe: the worker's serving path beside PEFT's model, or beside plain transformers for a fine-tune."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch

from wire.errors import ShoalError
from wire.jobs import Task
from wire.registry import Mode, ModelRecord
from wire.reports import Row as ReportRow
from wire.validation import ProbeReply, ProbeRequest
from workers.models import LoadedModel, ModelOptions, load_model, merge_version
from workers.models.folder import ModelFolder, open_folder
from workers.models.pooling import PoolingRule
from workers.models.protocol import Row, RowOutput
from workers.models.sentence_files import read_sentence_settings
from workers.packing.artifact import AdapterArtifact, read_artifact
from workers.probe_reference import HEAD_TASKS, make_rows, one_by_one, own_task, plain_network, with_peft
from workers.probe_rows import Measured, failure, judge
from workers.sources import ARTIFACT_SOURCE, resolve_source, weights_digest

_SLOTS = 2
_OPTIONS = ModelOptions(device="cpu", slots=_SLOTS, max_rank=1 << 16)
_FAILS = (ValueError, RuntimeError, KeyError, TypeError, OSError, AttributeError, ShoalError)
"""What PEFT and transformers raise for files that they cannot load."""


@dataclass(frozen=True, slots=True)
class ProbeBase:
    """A base model twice: as the worker serves it, and plain for PEFT. ``alone`` is what the plain model gives for
    ``rows``, the probe's texts for the base model's own task."""

    served: LoadedModel
    plain: Any
    folder: ModelFolder
    rule: PoolingRule
    rows: list[Row]
    alone: list[RowOutput]

    @property
    def task(self) -> Task:
        return self.rows[0].task


@dataclass(frozen=True, slots=True)
class _Served:
    """The worker's outputs: of rows with the adapter, and of the base's rows beside them (none when merged)."""

    rows: list[Row]
    adapted: list[RowOutput]
    in_mix: list[RowOutput]


def load_base(model_id: str, source: str, digest: str) -> ProbeBase:
    """Both copies, and the plain one's outputs. An empty ``digest`` is taken from the files.

    Raises ``ShoalError(MODEL_UNLOADABLE)``.
    """
    torch.set_num_threads(1)
    path = resolve_source(source)
    served = load_model(_record(model_id, digest or weights_digest(path), source), options=_OPTIONS)
    task, folder, rule = own_task(served), open_folder(path), read_sentence_settings(path).rule
    plain = plain_network(folder, task)
    rows = make_rows(served, task)
    _warm(served, rows)
    return ProbeBase(served, plain, folder, rule, rows, one_by_one(plain, rows, rule))


def probe(base: ProbeBase | None, request: ProbeRequest) -> ProbeReply:
    """The verdict on one version; what cannot be loaded by either side is a verdict too. ``base`` is ``None`` for a
    fine-tune. An adapter that is served merged changes ``base``: this process serves no second probe."""
    started = time.monotonic()
    rows, measured = _probe_full(request) if base is None else _probe_adapter(base, request)
    return ProbeReply(
        rows=rows,
        max_difference=measured.difference if measured else None,
        effect=measured.effect if measured else None,
        seconds=round(time.monotonic() - started, 3),
    )


def _probe_adapter(base: ProbeBase, request: ProbeRequest) -> tuple[list[ReportRow], Measured | None]:
    try:
        artifact = read_artifact(Path(request.canonical_path), expected_digest=request.digest)
        served = _merged(base, request, artifact) if request.mode is Mode.MERGED else _packed(base, request, artifact)
    except ShoalError as error:
        return [failure("The worker cannot load it", str(error))], None
    bad = Measured.of_nonfinite(served.adapted, served.in_mix)
    if bad.nonfinite_rows:
        return judge(request, bad), None
    try:
        plain = base.plain
        if request.task in HEAD_TASKS and base.task is not request.task:
            plain = plain_network(base.folder, request.task, labels=request.labels, problem=request.problem)
        expected = one_by_one(with_peft(plain, request.peft_dir), served.rows, base.rule)
        measured = Measured.compare(
            adapted=served.adapted,
            expected=expected,
            alone=base.alone if served.rows[0].task is base.task else None,
            in_mix=served.in_mix,
            base_alone=base.alone,
        )
    except _FAILS as error:
        return [failure("PEFT cannot load it", str(error))], None
    return judge(request, measured), measured


def _packed(base: ProbeBase, request: ProbeRequest, artifact: AdapterArtifact) -> _Served:
    """One packed batch in which rows of the base and of the adapter take turns."""
    model, digest = base.served, request.digest
    model.load_adapter(digest, artifact)
    try:
        resident = model.adapters.table.get(digest)
        head = resident.head if resident is not None else None
        rows = make_rows(model, request.task, head) if head is not None else base.rows
        # a decoder makes texts in steps of their own, so no row of it lies in a batch of a head
        beside = base.rows if head is None or base.task is not Task.GENERATE else []
        mixed = [row for pair in zip(rows, beside, strict=False) for row in pair] if beside else rows
        names = [digest, None] * min(len(rows), len(beside)) if beside else [digest] * len(rows)
        outputs = model.forward(mixed, names)
    finally:
        model.unload_adapter(digest)
    if not beside:
        return _Served(rows, outputs, [])
    return _Served(rows[: len(outputs) // 2], outputs[0::2], outputs[1::2])


def _merged(base: ProbeBase, request: ProbeRequest, artifact: AdapterArtifact) -> _Served:
    model = base.served
    record = msgspec.structs.replace(
        model.record, artifact=request.digest, base_digest=request.base_digest or model.record.digest
    )
    merge_version(record, model.kind, artifact, torch.device(model.options.device))
    own_head = getattr(model.kind, "own_head", None)
    rows = make_rows(model, request.task, own_head) if artifact.header.head is not None else base.rows
    return _Served(rows, model.forward(rows, [None] * len(rows)), [])


def _probe_full(request: ProbeRequest) -> tuple[list[ReportRow], Measured | None]:
    """One copy of the weights at a time: the memory of the process is limited."""
    torch.set_num_threads(1)
    record = msgspec.structs.replace(_record("the fine-tune", request.digest, ARTIFACT_SOURCE), artifact=request.digest)
    try:
        model = load_model(record, options=_OPTIONS, artifact=Path(request.canonical_path))
        rows = make_rows(model, request.task)
        served, again = (model.forward(rows, [None] * len(rows)) for _ in range(2))
    except ShoalError as error:
        return [failure("The worker cannot load it", str(error))], None
    bad = Measured.of_nonfinite(served)
    if bad.nonfinite_rows:
        return judge(request, bad), None
    del model
    gc.collect()
    try:
        folder = open_folder(Path(request.model_dir))
        rule = read_sentence_settings(folder.path).rule
        expected = one_by_one(plain_network(folder, request.task), rows, rule)
        measured = Measured.compare(adapted=served, expected=expected, alone=None, in_mix=served, base_alone=again)
    except _FAILS as error:
        return [failure("Transformers cannot load it", str(error))], None
    return judge(request, measured), measured


def _record(model_id: str, digest: str, source: str) -> ModelRecord:
    return ModelRecord(model_id, digest, source, [Task.EMBEDDINGS], "probe", 0, None, 0)


def _warm(served: LoadedModel, rows: list[Row]) -> None:
    """Do once in a server what every forked child would have to do again: imports of seconds, first-use set-up."""
    from peft import LoraConfig, inject_adapter_in_model

    inject_adapter_in_model(LoraConfig(target_modules=["0"]), torch.nn.Sequential(torch.nn.Linear(2, 2)))
    served.forward(rows[:1], [None])
