"""What is meant where an upload holds more than one thing: the answer the uploader gave, or the question to ask."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from loras.validation.archive.package import Package
from loras.validation.files.folders import CONFIG, TRAINING_STATE, WEIGHTS, Folder, candidates, is_junk
from loras.validation.files.formats import foreign_file
from loras.validation.findings import Refused, asked, clipped, failed, some
from wire.reports import Finding, Question

CHECK = "Files are there"
LORA, FULL = "lora", "full"
_LFS_START = b"version https://git-lfs.github.com/spec/"
_MOST_CHOICES = 100
# what git-lfs keeps of a repository; beside an adapter a tokenizer is not needed
_POINTED = (".json", ".safetensors", ".bin")
_TOKENIZERS = (".model", ".txt")


@dataclass(frozen=True, slots=True)
class Chosen:
    """The folder that is meant, and whether it is taken as an adapter or as a whole model. ``names`` are all files of
    the upload but ``junk``; ``weights`` is the one file that was chosen in the folder, "" where none had to be."""

    package: Package
    folder: Folder
    kind: str
    names: tuple[str, ...]
    junk: tuple[str, ...]
    weights: str = ""


def choose(package: Package, *, kind: str, choice: str) -> Chosen:
    """The one adapter or model in the upload. Raises ``Refused`` when there is none, or with a question when there
    are several, or when one folder can be read as either kind."""
    junk = tuple(sorted(name for name in package.files if is_junk(name)))
    names = tuple(sorted(set(package.files) - set(junk)))
    folder = _folder(candidates(names, package.files), names, choice)
    for base, name in folder.files.items():
        if base.endswith(_POINTED + _TOKENIZERS * folder.is_model) and base not in TRAINING_STATE:
            _check_pointer(package, name)
    meant = _kind(folder, kind)
    weights = "" if meant == FULL else _weights(folder, choice)
    return Chosen(package, folder, meant, names, junk, weights)


def _folder(found: list[Folder], names: tuple[str, ...], choice: str) -> Folder:
    if not found:
        raise _nothing(names)
    if len(found) == 1:
        return found[0]
    by_label = {folder.label: folder for folder in found}
    for label in (choice, posixpath.dirname(choice) or "."):
        if choice and label in by_label:
            return by_label[label]
    what = f"The upload holds {len(found)} of them: {some(by_label, limit=8)}."
    text = "Which of these folders is meant? A single dot stands for the top folder."
    raise _asks(Finding.SEVERAL_ADAPTERS, what, "Choose one; the others can be uploaded as versions of their own.",
                Question("choice", text, list(by_label)[:_MOST_CHOICES]))  # fmt: skip


def _kind(folder: Folder, wanted: str) -> str:
    if folder.is_model and folder.is_adapter:
        if wanted in (LORA, FULL):
            return wanted
        what = f"The folder {folder.label!r} holds a whole model ({some(folder.model_weights)}) and beside it {CONFIG}."
        text = "Is it the adapter (lora) or the whole model (full) that is to be served?"
        todo = "Answer lora if it was trained as an adapter, full if all weights were trained or merged."
        raise _asks(Finding.FULL_MODEL, what, todo, Question("kind", text, [LORA, FULL]))
    kind = FULL if folder.is_model else LORA
    if wanted in (LORA, FULL) and wanted != kind:
        raise _other_kind(folder, wanted)
    return kind


def _weights(folder: Folder, choice: str) -> str:
    found = folder.adapter_weights or folder.model_weights
    if not found:
        raise _nothing(tuple(folder.files.values()))
    if len(found) == 1:
        return found[0]
    if choice in found:
        return choice
    what = f"{len(found)} weight files and none is called {WEIGHTS}: {some(found)}."
    question = Question("choice", "Which of these files holds the adapter's weights?", found[:_MOST_CHOICES])
    raise _asks(Finding.SEVERAL_ADAPTERS, what, f"Choose one, or upload the right one as {WEIGHTS}.", question)


def _check_pointer(package: Package, name: str) -> None:
    with package.files[name].open("rb") as file:
        if file.read(len(_LFS_START)) != _LFS_START:
            return
    what = f"{clipped(name)} is a git-lfs pointer, not the file itself."
    todo = "Run `git lfs install && git lfs pull` in the repository you copied it from and upload again."
    raise Refused(failed(CHECK, Finding.LFS_POINTER, what, todo))


def _asks(code: Finding, found: str, todo: str, question: Question) -> Refused:
    return Refused(asked(CHECK, code, found, todo), question=question)


def _other_kind(folder: Folder, wanted: str) -> Refused:
    if wanted == LORA:
        what = f"A LoRA was announced (kind lora), but the upload is a whole model: {some(folder.model_weights)}."
        todo = f"Upload {CONFIG} and {WEIGHTS}, or send kind=full."
        return Refused(failed(CHECK, Finding.FULL_MODEL, what, todo))
    what = f"A whole model was announced (kind full), but the upload is an adapter: {some(folder.files.values())}."
    todo = "Upload config.json, the model's safetensors files and its tokenizer, or send kind=lora."
    return Refused(failed(CHECK, Finding.FILE_MISSING, what, todo))


def _nothing(names: tuple[str, ...]) -> Refused:
    for name in names:
        foreign = foreign_file(name)
        if foreign is not None:
            return Refused(foreign)
    what = f"There is no {WEIGHTS} among: {some(names, limit=8) or 'no files'}."
    todo = f"Upload {CONFIG} and {WEIGHTS}, or a folder or archive with both."
    return Refused(failed(CHECK, Finding.FILE_MISSING, what, todo))
