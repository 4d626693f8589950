"""The checks of an adapter, in order. Each step finds something out; each check is a function from that to rows."""

from __future__ import annotations

from pathlib import Path

from loras.validation.artifact import Canonical, check_canonical
from loras.validation.files.adapter import AdapterFiles, adapter_files, check_files
from loras.validation.files.choice import Chosen
from loras.validation.files.formats import check_keys
from loras.validation.lora.bases import check_base, choose_base
from loras.validation.lora.canonical import write_canonical
from loras.validation.lora.configuration import read_configuration
from loras.validation.lora.effect import NUMBER_CHECKS, Counted
from loras.validation.lora.heads import HEAD_CHECKS, read_head
from loras.validation.lora.mode import Serving, check_mode, decide_mode
from loras.validation.lora.pairs import PAIR_CHECKS, Paired
from loras.validation.lora.patterns import check_patterns
from loras.validation.lora.peft_folder import write_peft_folder
from loras.validation.lora.shapes import SHAPE_CHECKS, Compared
from loras.validation.lora.tasks import check_task, intend
from loras.validation.lora.tensors import sort_tensors
from loras.validation.lora.variant import VARIANT_CHECKS, Declared
from loras.validation.lora.whole import WHOLE_CHECKS, Placed, place_whole
from loras.validation.rows import KeptRows
from loras.validation.weights.header import Header, check_header, read_header
from loras.validation.weights.numbers import count_numbers
from loras.validation.weights.torch_file import note_converted, read_torch_file
from wire.manifest import Manifest
from wire.reports import Report
from wire.validation import ProbeRequest, SandboxReply, ValidationRequest


def examine_lora(request: ValidationRequest, chosen: Chosen, manifests: list[Manifest], kept: KeptRows) -> SandboxReply:
    """Judge an adapter up to the probe. Raises ``Refused``."""
    work_dir = Path(request.work_dir)
    files = kept.judge(adapter_files(chosen), check_files)
    header = kept.judge(_read_weights(files, work_dir, kept), check_keys)
    configuration = read_configuration(files.config)
    declared = kept.judge(Declared(configuration, header, sort_tensors(header)), *VARIANT_CHECKS, check_patterns)
    paired = kept.judge(Paired(declared, request.max_rank), *PAIR_CHECKS)
    counted = kept.judge(Counted(paired, count_numbers(paired.used)), *NUMBER_CHECKS)
    aligned = choose_base(paired, manifests, request.wanted_base_model)
    kept.judge(aligned, check_base)
    kept.judge(Compared(aligned, manifests), *SHAPE_CHECKS)
    intended = kept.judge(intend(aligned, files, manifests), check_task)
    headed = kept.judge(read_head(intended), *HEAD_CHECKS)
    placed = kept.judge(place_whole(headed), *WHOLE_CHECKS)
    serving = kept.judge(decide_mode(placed), check_mode)
    written = kept.judge(write_canonical(placed, counted, work_dir), check_canonical)
    report = Report(
        rows=kept.rows, digest=written.digest, mode=serving.mode, mode_reason=serving.reason, facts=written.facts
    )
    probe = _probe(request, placed, counted, serving, written)
    return SandboxReply(report=report, canonical_path=str(written.path), probe=probe)


def _read_weights(files: AdapterFiles, work_dir: Path, kept: KeptRows) -> Header:
    if not files.pickled:
        return kept.judge(read_header(files.weights), check_header)
    header = read_torch_file(files.weights, files.weights_name, work_dir)
    kept.rows.append(note_converted(files.weights_name, len(header.tensors)))
    return header


def _probe(
    request: ValidationRequest, placed: Placed, counted: Counted, serving: Serving, written: Canonical
) -> ProbeRequest:
    intended = placed.headed.intended
    manifest, task = intended.manifest, intended.task
    if task is None:
        raise ValueError(f"an adapter without a task reached the probe: {intended.said}")
    return ProbeRequest(
        base_model=manifest.id,
        base_source=manifest.source,
        base_digest=manifest.digest,
        base_dimension=manifest.dimension,
        base_max_tokens=manifest.max_tokens,
        digest=written.digest,
        canonical_path=str(written.path),
        peft_dir=str(write_peft_folder(placed, Path(request.work_dir))),
        max_rank=request.max_rank,
        expect_effect=counted.has_effect,
        mode=serving.mode,
        task=task,
        labels=placed.headed.labels,
        problem=placed.headed.problem,
    )
