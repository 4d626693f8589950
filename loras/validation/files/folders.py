"""The folders of an upload, and which of them hold an adapter or a model."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
MODEL_CONFIG = "config.json"
MODULES = "modules.json"
PICKLED_WEIGHTS = ("adapter_model.bin", "adapter_model.pt", "adapter_model.pth", "pytorch_lora_weights.bin")
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")

_MODEL = re.compile(r"(?:model|pytorch_model|consolidated)(?:[-.]\d+-of-\d+)?\.(?:safetensors|bin)")
_MODEL_INDEX = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
TRAINING_STATE = ("training_args.bin", "optimizer.pt", "optimizer.bin", "scheduler.pt", "scaler.pt", "rng_state.pth")
_JUNK_PARTS = ("__macosx", ".git", ".svn", ".ipynb_checkpoints", "__pycache__")
_JUNK_NAMES = (".ds_store", "thumbs.db", "desktop.ini", ".gitattributes", ".gitignore")
_MAX_INDEX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Folder:
    """One folder: ``files`` maps the names of the files in it to their names in the upload."""

    path: str
    files: dict[str, str]

    @property
    def label(self) -> str:
        """The folder as a question names it."""
        return self.path or "."

    @property
    def model_weights(self) -> list[str]:
        """Names in the upload of weight files that are called as a whole model's."""
        return sorted(name for base, name in self.files.items() if _MODEL.fullmatch(base) or base in _MODEL_INDEX)

    @property
    def adapter_weights(self) -> list[str]:
        """Names in the upload of files that can be an adapter's weights, the best one alone where it is plain."""
        for base in (WEIGHTS, *PICKLED_WEIGHTS):
            if base in self.files:
                return [self.files[base]]
        tensors = sorted(name for base, name in self.files.items() if _is_adapter_file(base, ".safetensors"))
        return tensors or sorted(name for base, name in self.files.items() if _is_adapter_file(base, PICKLE_SUFFIXES))

    @property
    def is_model(self) -> bool:
        """Whether a whole model lies here."""
        return bool(self.model_weights)

    @property
    def is_adapter(self) -> bool:
        """Whether an adapter lies here, by its configuration or by the name of its weights."""
        return CONFIG in self.files or any(base in self.files for base in (WEIGHTS, *PICKLED_WEIGHTS))


def is_junk(name: str) -> bool:
    """Whether ``name`` is of the operating system or a version control system."""
    parts = name.lower().split("/")
    return parts[-1].startswith("._") or parts[-1] in _JUNK_NAMES or any(part in _JUNK_PARTS for part in parts)


def candidates(names: Iterable[str], files: dict[str, Path]) -> list[Folder]:
    """Folders that may be what the uploader means, the top one first, then by number (``checkpoint-9`` before
    ``checkpoint-10``): those with an adapter or a model, else those with any weights at all."""
    folders = _folders(names)
    found = [folder for folder in folders if folder.is_adapter or folder.is_model]
    if not found:
        found = [folder for folder in folders if folder.adapter_weights]
    parts = {part for folder in found for part in _parts_of_model(folder, files)}
    return sorted((folder for folder in found if folder.path not in parts), key=lambda folder: _order(folder.path))


def _folders(names: Iterable[str]) -> list[Folder]:
    inside: dict[str, dict[str, str]] = {}
    for name in names:
        folder, base = posixpath.split(name)
        inside.setdefault(folder, {})[base] = name
    return [Folder(path, files) for path, files in inside.items()]


def _parts_of_model(folder: Folder, files: dict[str, Path]) -> list[str]:
    """Folders that belong to the sentence-transformers model in ``folder`` (``1_Pooling``, ``2_Dense``)."""
    return [posixpath.join(folder.path, path) for path, _ in sentence_modules(folder, files) if path]


def sentence_modules(folder: Folder, files: dict[str, Path]) -> list[tuple[str, str]]:
    """Path and last part of the type of each module that the folder's ``modules.json`` lists."""
    name = folder.files.get(MODULES)
    if name is None or files[name].stat().st_size > _MAX_INDEX_BYTES:
        return []
    try:
        listed = json.loads(files[name].read_bytes())
    except (ValueError, RecursionError):
        return []
    return [
        (str(entry.get("path") or ""), str(entry.get("type") or "").rsplit(".", 1)[-1])
        for entry in (listed if isinstance(listed, list) else [])
        if isinstance(entry, dict)
    ]


def _is_adapter_file(base: str, suffixes: str | tuple[str, ...]) -> bool:
    return base.endswith(suffixes) and not _MODEL.fullmatch(base) and base not in TRAINING_STATE


def _order(path: str) -> tuple[int, list[tuple[int, str]]]:
    pieces = re.findall(r"\d{1,12}|\D+|\d+", path)
    return path.count("/"), [
        (int(piece), "") if piece.isdecimal() and len(piece) < 13 else (-1, piece) for piece in pieces
    ]
