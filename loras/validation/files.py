"""Which of the files are the adapter, and what the others are."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from pathlib import Path

from loras.validation.findings import Refused, clipped, failed, noted, passed, some
from loras.validation.package import Package
from wire.reports import Finding, Row

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
CHECK = "Files are there"

_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_PICKLED_WEIGHTS = ("adapter_model.bin", "adapter_model.pt", "adapter_model.pth", "pytorch_lora_weights.bin")
_JUNK_PARTS = ("__macosx", ".git", ".svn", ".ipynb_checkpoints", "__pycache__")
_JUNK_NAMES = (".ds_store", "thumbs.db", "desktop.ini", ".gitattributes", ".gitignore")
_LFS_START = b"version https://git-lfs.github.com/spec/"
_FULL_WEIGHTS = ("model.safetensors", "pytorch_model.bin", "consolidated.safetensors")
_CONVERT = (
    "A pickle can run code, so it is never opened here. Load the adapter where you trained it and save it again: "
    "PeftModel.from_pretrained(base, folder).save_pretrained(out, safe_serialization=True), then upload "
    "adapter_model.safetensors and adapter_config.json."
)


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """``weights`` and ``config`` with their names in the upload; ``extra`` and ``junk`` are not read."""

    weights: Path
    weights_name: str
    config: Path
    config_name: str
    extra: tuple[str, ...]
    junk: tuple[str, ...]
    added_tokens: Path | None = None


def find_adapter(package: Package) -> AdapterFiles:
    """The one adapter in the upload. Raises ``Refused`` when there is none, or more than one."""
    junk = sorted(name for name in package.files if _is_junk(name))
    names = sorted(set(package.files) - set(junk))
    folder = _adapter_folder(names)
    inside = {posixpath.basename(name): name for name in names if posixpath.dirname(name) == folder}
    weights_name = _weights_name(inside, names)
    for name in (weights_name, inside.get(CONFIG, "")):
        if name and _is_lfs_pointer(package.files[name]):
            raise _lfs_pointer(name)
    if CONFIG not in inside:
        raise _without_config(weights_name, inside)
    used = {weights_name, inside[CONFIG]}
    tokens = inside.get("added_tokens.json")
    return AdapterFiles(
        weights=package.files[weights_name],
        weights_name=weights_name,
        config=package.files[inside[CONFIG]],
        config_name=inside[CONFIG],
        extra=tuple(name for name in names if name not in used),
        junk=tuple(junk),
        added_tokens=package.files[tokens] if tokens else None,
    )


def check_files(files: AdapterFiles) -> list[Row]:
    """Which files are the adapter, and which were left aside."""
    rows = [passed(CHECK, f"{clipped(files.weights_name)} and {clipped(files.config_name)}")]
    if files.extra:
        found = f"not part of the adapter: {some(files.extra, limit=12)}"
        rows.append(noted("Other files", Finding.FILES_IGNORED, found, "Nothing to do; they were not read."))
    if files.junk:
        found = f"{len(files.junk)} files of the operating system or git: {some(files.junk, limit=12)}"
        rows.append(noted("Junk files", Finding.FILES_IGNORED, found, "Nothing to do; they were not read."))
    return rows


def _adapter_folder(names: list[str]) -> str:
    folders = {posixpath.dirname(name) for name in names if posixpath.basename(name) == CONFIG}
    if not folders:
        folders = {posixpath.dirname(name) for name in names if _looks_like_weights(name)}
    if not folders:
        raise _nothing(names)
    if len(folders) > 1:
        listed = some((folder or "the top folder" for folder in sorted(folders)), limit=6)
        found = f"The upload holds {len(folders)} adapters: {listed}."
        todo = "Upload one of these folders alone, as its own adapter or version."
        raise Refused(failed(CHECK, Finding.SEVERAL_ADAPTERS, found, todo))
    return folders.pop()


def _weights_name(inside: dict[str, str], names: list[str]) -> str:
    if WEIGHTS in inside:
        return inside[WEIGHTS]
    for pickled in _PICKLED_WEIGHTS:
        if pickled in inside:
            raise _pickle(inside[pickled])
    for full in _FULL_WEIGHTS:
        if full in inside or any(name.startswith("model-00001-of-") for name in inside):
            raise _full_model(inside, full)
    tensors = [name for base, name in sorted(inside.items()) if base.endswith(".safetensors")]
    if len(tensors) == 1:
        return tensors[0]
    if tensors:
        found = f"{len(tensors)} weight files and none is called {WEIGHTS}: {some(tensors)}."
        raise Refused(failed(CHECK, Finding.SEVERAL_ADAPTERS, found, f"Upload the right one as {WEIGHTS}."))
    for base, name in sorted(inside.items()):
        if base.endswith(_PICKLES) and base not in ("training_args.bin", "optimizer.pt", "scheduler.pt"):
            raise _pickle(name)
        if base.endswith(".gguf"):
            raise _gguf(name)
    raise _nothing(names)


def _looks_like_weights(name: str) -> bool:
    return name.endswith((".safetensors", ".gguf")) or posixpath.basename(name) in _PICKLED_WEIGHTS


def _is_junk(name: str) -> bool:
    parts = name.lower().split("/")
    return parts[-1].startswith("._") or parts[-1] in _JUNK_NAMES or any(part in _JUNK_PARTS for part in parts)


def _is_lfs_pointer(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_LFS_START)) == _LFS_START


def _lfs_pointer(name: str) -> Refused:
    return Refused(
        failed(
            CHECK,
            Finding.LFS_POINTER,
            f"{clipped(name)} is a git-lfs pointer, not the file itself.",
            "Run `git lfs install && git lfs pull` in the repository you copied it from and upload again.",
        )
    )


def _pickle(name: str) -> Refused:
    found = f"{clipped(name)} is a pickle; there is no safetensors file beside it."
    return Refused(failed(CHECK, Finding.PICKLE_UNSAFE, found, _CONVERT))


def _gguf(name: str) -> Refused:
    found = f"{clipped(name)} is in the GGUF format of llama.cpp."
    todo = "Upload the PEFT folder it was converted from (adapter_config.json, adapter_model.safetensors)."
    return Refused(failed(CHECK, Finding.FORMAT_UNSUPPORTED, found, todo))


def _full_model(inside: dict[str, str], full: str) -> Refused:
    beside = f"{CONFIG} lies beside it" if CONFIG in inside else f"there is no {CONFIG}"
    found = f"The weights are a whole model ({full}); {beside}."
    todo = f"For a LoRA upload {WEIGHTS} as PEFT's save_pretrained writes it. Whole models are not accepted here."
    return Refused(failed(CHECK, Finding.FULL_MODEL, found, todo))


def _without_config(weights_name: str, inside: dict[str, str]) -> Refused:
    if "config.json" in inside:
        return _full_model(inside, posixpath.basename(weights_name))
    found = f"{clipped(weights_name)} has no {CONFIG} beside it, so its scale (lora_alpha / r) is unknown."
    todo = f"Upload {CONFIG} too: PEFT writes both files into one folder."
    return Refused(failed(CHECK, Finding.CONFIG_MISSING, found, todo))


def _nothing(names: list[str]) -> Refused:
    pickles = [name for name in names if name.endswith(_PICKLES)]
    if len(pickles) == 1 and len(names) == 1:
        return _pickle(pickles[0])
    found = f"There is no {WEIGHTS} among: {some(names, limit=8) or 'no files'}."
    todo = f"Upload {CONFIG} and {WEIGHTS}, or a folder or archive with both."
    return Refused(failed(CHECK, Finding.FILE_MISSING, found, todo))
