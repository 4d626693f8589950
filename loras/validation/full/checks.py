"""The checks of a whole model (a full fine-tune), in order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from loras.validation.artifact import CANONICAL_NAME, Canonical, check_canonical, header_metadata
from loras.validation.files.choice import Chosen
from loras.validation.files.folders import MODEL_CONFIG
from loras.validation.findings import failed, noted, passed, some
from loras.validation.full.architecture import ARCHITECTURE_CHECKS, Architecture, read_architecture
from loras.validation.full.blueprints import ask_blueprint
from loras.validation.full.files import MODEL_FILE_CHECKS, ModelFiles, model_files
from loras.validation.full.tensors import TENSOR_CHECKS, ModelTensors, compare_tensors, read_weights
from loras.validation.full.tokenizers import Tokenized, check_tokenizer
from loras.validation.lora.heads import PROBLEMS, REGRESSION, SINGLE_LABEL, label_names
from loras.validation.lora.tasks import HEAD_TASKS, PREFERRED
from loras.validation.rows import KeptRows
from loras.validation.weights.header import Tensor
from loras.validation.weights.numbers import count_numbers, judge_finite
from loras.validation.weights.safetensors_writer import write_safetensors
from loras.validation.weights.torch_file import note_converted
from wire.canonical import FORMAT, PREFIX_FILE, CanonicalHeader
from wire.jobs import Task
from wire.manifest import Blueprint, Manifest
from wire.registry import Mode
from wire.reports import AdapterFacts, Finding, Report, Row
from wire.validation import ProbeRequest, SandboxReply, ValidationRequest

MODEL_FOLDER = "model"
REASON = "All weights are the version's own: it is served as a model of its own, loaded when it is used."


@dataclass(frozen=True, slots=True)
class Described:
    """A model whose class is known: what it serves, with which labels (none where it is no classifier)."""

    architecture: Architecture
    manifest: Manifest
    labels: list[str]
    named: bool
    problem: str


def examine_full(request: ValidationRequest, chosen: Chosen, kept: KeptRows) -> SandboxReply:
    """Judge a whole model up to the probe. Raises ``Refused``."""
    work_dir = Path(request.work_dir)
    files = kept.judge(model_files(chosen), *MODEL_FILE_CHECKS)
    architecture = kept.judge(read_architecture(files.config), *ARCHITECTURE_CHECKS)
    weights = read_weights(files, work_dir)
    kept.rows.append(_read_row(files, weights))
    folder = link_model(files, work_dir)
    blueprint = ask_blueprint(folder)
    described = kept.judge(_describe(architecture, blueprint), check_tasks, check_labels)
    kept.judge(Tokenized(files, blueprint.manifest.vocabulary), check_tokenizer)
    tensors = kept.judge(compare_tensors(weights, blueprint), *TENSOR_CHECKS)
    counts = count_numbers(tensors.used.values())
    kept.judge(tensors, lambda found: judge_finite(counts, _parameters(found)))
    written = kept.judge(_write(files, tensors, described, work_dir), check_canonical)
    if files.pickled:
        # the probe's reference reads the same numbers, out of a file that cannot run anything
        for name in files.weights:
            (folder / name).unlink()
        (folder / "model.safetensors").symlink_to(written.path)
    report = Report(
        rows=kept.rows, digest=written.digest, mode=Mode.FULL, mode_reason=REASON, facts=written.facts, kind="full"
    )
    return SandboxReply(
        report=report,
        canonical_path=str(written.path),
        probe=_probe(request, described, written, folder),
    )


def link_model(files: ModelFiles, work_dir: Path) -> Path:
    """An ordinary model folder below ``work_dir`` that links to the files which are served, and to no others."""
    folder = work_dir / MODEL_FOLDER
    for name, path in {**files.small, **files.weights, **files.index_file}.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(path)
    return folder


def check_tasks(found: Described) -> list[Row]:
    """What the class serves."""
    manifest = found.manifest
    if not manifest.tasks:
        what = f"{manifest.architecture} ({manifest.family}) has no output that is served."
        todo = "Upload an encoder, a causal language model, or a classifier of the served families."
        return [failed("Task", Finding.TASK_MISMATCH, what, todo)]
    return [passed("Task", f"{', '.join(manifest.tasks)}, by {manifest.architecture}")]


def check_labels(found: Described) -> list[Row]:
    """Names of a classifier's outputs."""
    if not found.labels:
        return []
    named = some(found.labels, limit=12)
    if found.named:
        return [passed("Labels", f"{len(found.labels)} from config.json: {named}")]
    what = f"config.json names no labels; the {len(found.labels)} outputs are called {named}."
    return [noted("Labels", Finding.LABELS_INFERRED, what, "Put id2label into config.json to give them names.")]


def _read_row(files: ModelFiles, weights: dict[str, Tensor]) -> Row:
    size = sum(path.stat().st_size for path in files.weights.values())
    if files.pickled:
        return note_converted(some(files.weights), len(weights))
    what = f"{len(weights)} tensors in {len(files.weights)} files, every one of {size:,} bytes accounted for"
    return passed("Weights are well formed", what)


def _describe(architecture: Architecture, blueprint: Blueprint) -> Described:
    manifest, raw = blueprint.manifest, architecture.raw
    if not any(task in manifest.tasks for task in HEAD_TASKS):
        return Described(architecture, manifest, [], False, SINGLE_LABEL)
    labels = label_names(raw, MODEL_CONFIG)
    count = raw.get("num_labels")
    names = labels or [f"LABEL_{number}" for number in range(count if isinstance(count, int) and count > 0 else 2)]
    problem = raw.get("problem_type")
    if not isinstance(problem, str) or problem not in PROBLEMS:
        problem = REGRESSION if len(names) == 1 and Task.CLASSIFY in manifest.tasks else SINGLE_LABEL
    generated = labels == [f"LABEL_{number}" for number in range(len(labels))]
    return Described(architecture, manifest, names, bool(labels) and not generated, problem)


def _parameters(tensors: ModelTensors) -> int:
    return sum(tensor.elements for tensor in tensors.used.values())


def _write(files: ModelFiles, tensors: ModelTensors, described: Described, work_dir: Path) -> Canonical:
    manifest = described.manifest
    content = {tensor.name: tensor for tensor in tensors.used.values()}
    for name, path in files.small.items():
        size = path.stat().st_size
        content[PREFIX_FILE + name] = Tensor(PREFIX_FILE + name, "U8", (size,), 0, size, path)
    target = work_dir / CANONICAL_NAME
    header = CanonicalHeader(format=FORMAT, base_model="", base_digest="", modules={}, kind="full")
    digest = write_safetensors(target, content, header_metadata(header))
    facts = AdapterFacts(
        modules=len(manifest.modules),
        tensors=len(tensors.used),
        dtype=", ".join(sorted({tensor.dtype for tensor in tensors.used.values()})),
        parameters=_parameters(tensors),
        size_bytes=target.stat().st_size,
        tasks=list(manifest.tasks),
        labels=described.labels,
        architecture=manifest.architecture,
        dimension=manifest.dimension,
        max_tokens=manifest.max_tokens,
        vocabulary=manifest.vocabulary,
    )
    return Canonical(target, digest, facts.size_bytes, facts)


def _probe(request: ValidationRequest, described: Described, written: Canonical, folder: Path) -> ProbeRequest:
    manifest = described.manifest
    return ProbeRequest(
        base_model="",
        base_source="",
        base_digest="",
        base_dimension=manifest.dimension,
        base_max_tokens=manifest.max_tokens,
        digest=written.digest,
        canonical_path=str(written.path),
        peft_dir="",
        max_rank=request.max_rank,
        kind="full",
        mode=Mode.FULL,
        task=next(task for task in PREFERRED if task in manifest.tasks),
        labels=described.labels,
        problem=described.problem,
        model_dir=str(folder),
    )
