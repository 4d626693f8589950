"""One upload from its files to a verdict: as an adapter, or as a whole model."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from loras.validation.archive.package import check_archive, open_package
from loras.validation.files.choice import FULL, choose
from loras.validation.findings import Refused
from loras.validation.full.checks import examine_full
from loras.validation.lora.checks import examine_lora
from loras.validation.rows import KeptRows
from wire.codec import decode_json
from wire.manifest import Manifest
from wire.reports import Report
from wire.validation import SandboxReply, ValidationRequest


def examine(request: ValidationRequest) -> SandboxReply:
    """Judge one upload up to the probe. Nothing an upload holds makes it raise, but for a full disk or memory."""
    started = time.monotonic()
    kept = KeptRows()
    kind = request.wanted_kind or "lora"
    try:
        package = kept.judge(open_package(request), check_archive)
        chosen = choose(package, kind=request.wanted_kind, choice=request.wanted_choice)
        kind = chosen.kind
        if kind == FULL:
            reply = examine_full(request, chosen, kept)
        else:
            reply = examine_lora(request, chosen, _manifests(request), kept)
    except Refused as refused:
        reply = SandboxReply(report=Report(rows=[*kept.rows, *refused.rows], question=refused.question))
    report = msgspec.structs.replace(reply.report, kind=kind, seconds=time.monotonic() - started)
    return msgspec.structs.replace(reply, report=report)


def _manifests(request: ValidationRequest) -> list[Manifest]:
    read = [decode_json(Path(path).read_bytes(), Manifest) for path in request.manifest_paths]
    return [*request.manifests, *read]
