"""The order of all checks. Each step finds something out; each check is a function from that to report rows."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from loras.validation.alignment import Aligned
from loras.validation.bases import BASE_CHECKS, choose_base
from loras.validation.canonical import Canonical, check_canonical, write_canonical, write_peft_folder
from loras.validation.configuration import read_configuration
from loras.validation.files import AdapterFiles, check_files, find_adapter
from loras.validation.findings import Check, Found, Refused, judge
from loras.validation.header import check_header, read_header
from loras.validation.numbers import NUMBER_CHECKS, Counted, count_numbers
from loras.validation.package import check_archive, open_package
from loras.validation.pairs import PAIR_CHECKS, Paired
from loras.validation.shapes import SHAPE_CHECKS, Compared
from loras.validation.tensors import sort_tensors
from loras.validation.variant import VARIANT_CHECKS, Declared
from wire.codec import decode_json
from wire.manifest import Manifest
from wire.registry import Mode
from wire.reports import Question, Report, Row
from wire.validation import ProbeRequest, SandboxReply, ValidationRequest

PACKED_REASON = "Plain LoRA on linear layers: it is served from slots, in mixed batches."


@dataclass(slots=True)
class _Rows:
    """Rows so far; they are kept when a later step refuses."""

    rows: list[Row] = field(default_factory=list)

    def judge(self, found: Found, *checks: Check[Found]) -> Found:
        self.rows.extend(judge(found, checks))
        return found


def examine(request: ValidationRequest) -> SandboxReply:
    """Judge one upload up to the probe. Nothing an upload holds makes it raise, but for a full disk or memory."""
    started = time.monotonic()
    kept = _Rows()
    question: Question | None = None
    try:
        return _examine(request, kept, started)
    except Refused as refused:
        question = refused.question
        rows = [*kept.rows, *refused.rows]
    seconds = time.monotonic() - started
    return SandboxReply(report=Report(rows=rows, question=question, seconds=seconds))


def _examine(request: ValidationRequest, kept: _Rows, started: float) -> SandboxReply:
    work_dir = Path(request.work_dir)
    package = kept.judge(open_package(request), check_archive)
    files = kept.judge(find_adapter(package), check_files)
    header = kept.judge(read_header(files.weights), check_header)
    configuration = read_configuration(files.config)
    declared = kept.judge(Declared(configuration, header, sort_tensors(header)), *VARIANT_CHECKS)
    paired = kept.judge(Paired(declared, request.max_rank), *PAIR_CHECKS)
    counted = kept.judge(count_numbers(files.weights, paired), *NUMBER_CHECKS)
    manifests = _manifests(request)
    aligned = choose_base(paired, manifests, request.wanted_base_model)
    kept.judge(Compared(aligned, manifests, files), *SHAPE_CHECKS)
    kept.judge(aligned, *BASE_CHECKS)
    written = kept.judge(write_canonical(aligned, counted, files.weights, work_dir), check_canonical)
    return SandboxReply(
        report=Report(
            rows=kept.rows,
            digest=written.digest,
            mode=Mode.PACKED,
            mode_reason=PACKED_REASON,
            facts=written.facts,
            seconds=time.monotonic() - started,
        ),
        canonical_path=str(written.path),
        probe=_probe(request, aligned, counted, files, written),
    )


def _probe(
    request: ValidationRequest, aligned: Aligned, counted: Counted, files: AdapterFiles, written: Canonical
) -> ProbeRequest:
    manifest = aligned.manifest
    folder = write_peft_folder(aligned, files.weights, Path(request.work_dir))
    return ProbeRequest(
        base_model=manifest.id,
        base_source=manifest.source,
        base_digest=manifest.digest,
        base_dimension=manifest.dimension,
        base_max_tokens=manifest.max_tokens,
        digest=written.digest,
        canonical_path=str(written.path),
        peft_dir=str(folder),
        max_rank=request.max_rank,
        expect_effect=counted.has_effect,
    )


def _manifests(request: ValidationRequest) -> list[Manifest]:
    read = [decode_json(Path(path).read_bytes(), Manifest) for path in request.manifest_paths]
    return [*request.manifests, *read]
