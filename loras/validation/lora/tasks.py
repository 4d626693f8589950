"""What an adapter was trained for, and the base models that can serve that."""

from __future__ import annotations

from dataclasses import dataclass

from loras.validation.files.adapter import AdapterFiles
from loras.validation.files.folders import MODEL_CONFIG
from loras.validation.files.vocabulary import read_object
from loras.validation.findings import clipped, failed, noted, passed, some
from loras.validation.lora.alignment import Aligned, align
from wire.jobs import Task
from wire.manifest import Manifest, TaskHead
from wire.reports import Finding, Row

CHECK = "Task"
TASK_TYPES = {
    "FEATURE_EXTRACTION": Task.EMBEDDINGS,
    "SEQ_CLS": Task.CLASSIFY,
    "TOKEN_CLS": Task.TOKEN_CLASSIFY,
    "CAUSAL_LM": Task.GENERATE,
}
HEAD_TASKS = (Task.CLASSIFY, Task.TOKEN_CLASSIFY)
_ARCHITECTURES = {
    "ForSequenceClassification": Task.CLASSIFY,
    "ForTokenClassification": Task.TOKEN_CLASSIFY,
    "ForCausalLM": Task.GENERATE,
}
# what a base model with several tasks is probed with
PREFERRED = (Task.EMBEDDINGS, Task.GENERATE, Task.CLASSIFY, Task.TOKEN_CLASSIFY, Task.RERANK)
# names that classification heads have in transformers
_HEADS = frozenset({"classifier", "score", "pre_classifier", "classification_head", "qa_outputs"})


@dataclass(frozen=True, slots=True)
class Intended:
    """An adapter beside its base with its task; ``task`` is ``None`` where it is one that nothing here serves.

    ``said`` tells where the task is taken from. ``manifests`` are all registered base models.
    """

    aligned: Aligned
    files: AdapterFiles
    manifests: list[Manifest]
    task: Task | None
    said: str
    declared: bool

    @property
    def manifest(self) -> Manifest:
        return self.aligned.manifest

    @property
    def head(self) -> TaskHead | None:
        """The head that an adapter of this task brings along; ``None`` where the base's own output is used."""
        if self.task is None or self.task in self.manifest.tasks:
            return None
        return next((head for head in self.manifest.heads if head.task is self.task), None)

    @property
    def head_like(self) -> list[str]:
        """Whole tensors of the upload whose names are those of classification heads."""
        return [name for name in self.aligned.paired.declared.sorted.whole if not _HEADS.isdisjoint(name.split("."))]


def intend(aligned: Aligned, files: AdapterFiles, manifests: list[Manifest]) -> Intended:
    """The task that the configuration names, else the model class in ``config.json``, else what the tensors are."""

    def decided(task: Task | None, said: str, *, declared: bool = True) -> Intended:
        return Intended(aligned, files, manifests, task, said, declared)

    task_type = aligned.paired.configuration.task_type.upper()
    if task_type:
        return decided(TASK_TYPES.get(task_type), f"task_type is {clipped(task_type)}")
    undecided = decided(None, "")
    if undecided.head_like:
        task, name = _of_architecture(files)
        if task in HEAD_TASKS:
            return decided(task, f"{MODEL_CONFIG} names {name}")
        return decided(Task.CLASSIFY, "task_type is absent and the file has a classification head", declared=False)
    serves = [task for task in PREFERRED if task in aligned.manifest.tasks]
    return decided(serves[0] if serves else None, "task_type is absent, so it is the base's")


def check_task(found: Intended) -> list[Row]:
    """The task against what the base serves, itself or with a head."""
    manifest, serves = found.manifest, _served(found.manifest)
    on = f"{manifest.id} ({manifest.architecture})"
    named = ", ".join(serves) or "no task"
    if found.task is None or found.task not in serves:
        what = f"{on} serves {named}, but {found.said}."
        return [failed(CHECK, Finding.TASK_MISMATCH, what, _other_base(found))]
    if found.head_like and found.head is None and found.task not in HEAD_TASKS:
        what = f"The file has a head ({some(found.head_like)}), but {found.said}."
        todo = "Set task_type to SEQ_CLS or TOKEN_CLS as in training, or save the adapter without its head."
        return [failed(CHECK, Finding.TASK_MISMATCH, what, todo)]
    if not found.declared:
        what = f"It is served as a text classifier on {on}: {found.said}."
        return [noted(CHECK, Finding.CONFIG_INFERRED, what, "Set task_type in adapter_config.json if it is another.")]
    return [passed(CHECK, f"{found.task} on {on}: {found.said}")]


def _served(manifest: Manifest) -> list[Task]:
    return list(dict.fromkeys([*manifest.tasks, *(head.task for head in manifest.heads)]))


def _other_base(found: Intended) -> str:
    if found.task is None:
        known = ", ".join(TASK_TYPES)
        return f"Adapters of these task types are served: {known}."
    fitting = [
        manifest.id
        for manifest in found.manifests
        if found.task in _served(manifest) and align(found.aligned.paired, manifest).fits
    ]
    if fitting:
        return f"It fits {some(fitting)}, which serves {found.task}: name that base model."
    serving = [manifest.id for manifest in found.manifests if found.task in _served(manifest)]
    return f"Train on a base model that serves {found.task}: {some(serving, limit=6) or 'none is registered'}."


def _of_architecture(files: AdapterFiles) -> tuple[Task | None, str]:
    names = read_object(files.companions.get(MODEL_CONFIG)).get("architectures")
    for name in names if isinstance(names, list) else []:
        for ending, task in _ARCHITECTURES.items():
            if isinstance(name, str) and name.endswith(ending):
                return task, clipped(name)
    return None, ""
