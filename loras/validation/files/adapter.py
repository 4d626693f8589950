"""The files of the one adapter in an upload, and what the others are."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from pathlib import Path

from loras.validation.files.choice import CHECK, Chosen
from loras.validation.files.folders import CONFIG, MODEL_CONFIG, PICKLE_SUFFIXES
from loras.validation.files.formats import foreign_file, foreign_keys
from loras.validation.findings import Refused, clipped, failed, noted, passed, some
from loras.validation.weights.header import read_header
from wire.reports import Finding, Row


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """``weights`` and ``config`` with their names in the upload; ``companions`` are read beside them where they are
    there (``config.json``, the tokenizer's), by base name; ``extra`` and ``junk`` are not read."""

    weights: Path
    weights_name: str
    config: Path
    config_name: str
    companions: dict[str, Path]
    extra: tuple[str, ...]
    junk: tuple[str, ...]

    @property
    def pickled(self) -> bool:
        """Whether the weights were saved by ``torch.save``."""
        return self.weights_name.endswith(PICKLE_SUFFIXES)


_COMPANIONS = (MODEL_CONFIG, "added_tokens.json", "tokenizer.json", "tokenizer_config.json")


def adapter_files(chosen: Chosen) -> AdapterFiles:
    """The adapter in the chosen folder. Raises ``Refused`` for other formats and without a configuration."""
    package, folder = chosen.package, chosen.folder
    foreign = foreign_file(chosen.weights)
    if foreign is not None:
        raise Refused(foreign)
    if CONFIG not in folder.files:
        raise _without_config(package.files[chosen.weights], chosen.weights)
    used = {chosen.weights, folder.files[CONFIG]}
    return AdapterFiles(
        weights=package.files[chosen.weights],
        weights_name=chosen.weights,
        config=package.files[folder.files[CONFIG]],
        config_name=folder.files[CONFIG],
        companions={base: package.files[folder.files[base]] for base in _COMPANIONS if base in folder.files},
        extra=tuple(name for name in chosen.names if name not in used),
        junk=chosen.junk,
    )


def check_files(files: AdapterFiles) -> list[Row]:
    """Which files are the adapter, and which were left aside."""
    found = passed(CHECK, f"{clipped(files.weights_name)} and {clipped(files.config_name)}")
    return [found, *note_others(files.extra, files.junk)]


def note_others(extra: tuple[str, ...], junk: tuple[str, ...]) -> list[Row]:
    """Rows on the files that are not part of what is served."""
    rows = []
    if extra:
        found = f"{_files(extra)} not served: {some(extra, limit=12)}"
        rows.append(noted("Other files", Finding.FILES_IGNORED, found, "Nothing to do."))
    if junk:
        found = f"{_files(junk)} of the operating system or git: {some(junk, limit=12)}"
        rows.append(noted("Junk files", Finding.FILES_IGNORED, found, "Nothing to do; they were not read."))
    return rows


def _files(names: tuple[str, ...]) -> str:
    return "1 file" if len(names) == 1 else f"{len(names)} files"


def _without_config(weights: Path, name: str) -> Refused:
    # other tools write one file alone: its keys say more than the absence of a configuration does
    try:
        foreign = None if name.endswith(PICKLE_SUFFIXES) else foreign_keys(t.name for t in read_header(weights).tensors)
    except Refused:
        foreign = None
    if foreign is not None:
        return Refused(foreign)
    found = f"{clipped(posixpath.basename(name))} has no {CONFIG} beside it, so its scale (lora_alpha / r) is unknown."
    todo = f"Upload {CONFIG} too: PEFT writes both files into one folder."
    return Refused(failed(CHECK, Finding.CONFIG_MISSING, found, todo))
