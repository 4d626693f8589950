"""The head of a classifier adapter: its tensors against the base's class, and the labels of its outputs."""

from __future__ import annotations

from dataclasses import dataclass

from loras.validation.files.folders import MODEL_CONFIG
from loras.validation.files.vocabulary import read_object
from loras.validation.findings import Refused, clipped, failed, noted, passed, shape_text, some
from loras.validation.lora.tasks import Intended
from loras.validation.weights.header import Tensor
from wire.jobs import Task
from wire.reports import Finding, Row

CHECK = "Task head"
_LABELS = "Labels"
_LABEL_COUNT = -1
_MAX_LABELS = 10_000
_MAX_LABEL_CHARS = 500
SINGLE_LABEL, REGRESSION = "single_label_classification", "regression"
PROBLEMS = (SINGLE_LABEL, "multi_label_classification", REGRESSION)


@dataclass(frozen=True, slots=True)
class Headed:
    """An adapter with the tensors of its head by the names of the base's class for the task (none without a head),
    its ``labels`` in order of the outputs, where they are from, and transformers' ``problem_type``."""

    intended: Intended
    tensors: dict[str, Tensor]
    labels: list[str]
    labels_from: str
    problem: str


def read_head(intended: Intended) -> Headed:
    """The head and its labels. Raises ``Refused`` (HEAD_MISSING, SHAPE_MISMATCH, CONFIG_INVALID)."""
    head = intended.head
    if head is None:
        return Headed(intended, {}, [], "", SINGLE_LABEL)
    whole = intended.aligned.paired.declared.sorted.whole
    absent = [tensor.name for tensor in head.tensors if tensor.name not in whole]
    if absent:
        raise Refused(_missing(intended, absent, len(head.tensors)))
    tensors = {tensor.name: whole[tensor.name] for tensor in head.tensors}
    outputs = {
        size
        for expected in head.tensors
        for size, wanted in zip(tensors[expected.name].shape, expected.shape, strict=False)
        if wanted == _LABEL_COUNT
    }
    count = outputs.pop() if len(outputs) == 1 else 0
    misfits = [
        f"{clipped(expected.name)} {shape_text(tensors[expected.name].shape)}, the base needs "
        f"{'×'.join('labels' if size == _LABEL_COUNT else str(size) for size in expected.shape)}"
        for expected in head.tensors
        if tensors[expected.name].shape != tuple(count if size == _LABEL_COUNT else size for size in expected.shape)
    ]
    if misfits or not 0 < count <= _MAX_LABELS:
        what = f"The head does not fit {intended.manifest.id}: {some(misfits) or f'{count} labels'}."
        todo = f"Train on {intended.manifest.id}, or name the base model it was trained on."
        raise Refused(failed(CHECK, Finding.SHAPE_MISMATCH, what, todo))
    labels, labels_from = _labels(intended, count)
    return Headed(intended, tensors, labels, labels_from, _problem(intended, count))


def check_head(found: Headed) -> list[Row]:
    """What the head is and where its labels are from."""
    if not found.tensors:
        return []
    head = passed(CHECK, f"{len(found.tensors)} tensors, {len(found.labels)} outputs ({found.problem}), each row's own")
    named = some(found.labels, limit=12)
    if found.labels_from:
        return [head, passed(_LABELS, f"{len(found.labels)} from {found.labels_from}: {named}")]
    what = f"No file names the labels; the {len(found.labels)} outputs are called {named}."
    todo = f"Upload the model's {MODEL_CONFIG} with id2label beside the adapter to give them names."
    return [head, noted(_LABELS, Finding.LABELS_INFERRED, what, todo)]


def label_names(raw: dict[str, object], source: str) -> list[str]:
    """Labels of ``id2label`` in order of their ids, numbers among them as text; empty where it is absent.

    Raises ``Refused`` (CONFIG_INVALID) when its ids do not count from 0, or when a label is no text.
    """
    listed = raw.get("id2label")
    if not isinstance(listed, dict):
        return []
    names = [listed.get(str(number)) for number in range(len(listed))]
    odd = [str(number) for number, name in enumerate(names) if not _is_label(name)]
    if odd:
        what = f"id2label in {source} has {len(names)} entries, but no label for output {some(odd)}"
        what += f"; its ids are {some(listed, limit=8)}."
        raise Refused(failed(_LABELS, Finding.CONFIG_INVALID, what, "Name each output by its number, from 0 on."))
    return [str(name)[:_MAX_LABEL_CHARS] for name in names]


def _is_label(value: object) -> bool:
    """Whether ``value`` is a text or number that every answer and database can hold."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return False
    text = str(value)
    return "\0" not in text and text.encode(errors="ignore").decode() == text


def _missing(intended: Intended, absent: list[str], total: int) -> Row:
    what = f"{len(absent)} of the head's {total} tensors are not in the file, though {intended.said}: {some(absent)}."
    if intended.head_like:
        what += f" The file has {some(intended.head_like)}."
    modules = sorted({name.split(".")[0] for name in absent})
    todo = f"Save the head too: list it in modules_to_save ({', '.join(map(repr, modules))}) and save again."
    return failed(CHECK, Finding.HEAD_MISSING, what, todo)


def _labels(intended: Intended, count: int) -> tuple[list[str], str]:
    sources = (
        (MODEL_CONFIG, read_object(intended.files.companions.get(MODEL_CONFIG))),
        ("adapter_config.json", intended.aligned.paired.configuration.raw),
    )
    for source, raw in sources:
        labels = label_names(raw, source)
        if labels and len(labels) != count:
            what = f"id2label in {source} names {len(labels)} labels, the head has {count} outputs."
            todo = f"Upload the {source} that belongs to this head."
            raise Refused(failed(_LABELS, Finding.CONFIG_INVALID, what, todo))
        if labels:
            return labels, source
    return [f"LABEL_{number}" for number in range(count)], ""


def _problem(intended: Intended, count: int) -> str:
    raw = read_object(intended.files.companions.get(MODEL_CONFIG))
    said = raw.get("problem_type") or intended.aligned.paired.configuration.raw.get("problem_type")
    if isinstance(said, str) and said in PROBLEMS:
        return said
    # transformers takes a head with one output for a regression
    return REGRESSION if count == 1 and intended.task is Task.CLASSIFY else SINGLE_LABEL


HEAD_CHECKS = (check_head,)
