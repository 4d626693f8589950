"""The files of a whole model: its configuration, its weights in one or many files, and the small ones beside them."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import Path

from loras.validation.files.adapter import note_others
from loras.validation.files.choice import CHECK, Chosen
from loras.validation.files.folders import MODEL_CONFIG, MODULES, sentence_modules
from loras.validation.files.vocabulary import read_object
from loras.validation.findings import Refused, clipped, failed, passed, shown, some
from wire.reports import Finding, Row

TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "vocab.json", "merges.txt",
    "tokenizer.model", "sentencepiece.bpe.model", "spiece.model", "added_tokens.json", "chat_template.jinja",
    "chat_template.json",
)  # fmt: skip
_SMALL_FILES = (
    *TOKENIZER_FILES, MODEL_CONFIG, "generation_config.json", MODULES, "config_sentence_transformers.json",
    "sentence_bert_config.json",
)  # fmt: skip
_PROMPTS = "config_sentence_transformers.json"
_OBJECTS = ("tokenizer_config.json", "sentence_bert_config.json", _PROMPTS)
_MAX_SMALL_BYTES = 128 << 20
_SINGLE = ("model.safetensors", "pytorch_model.bin")
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.(?:safetensors|bin)")
# what workers compute between a sentence-transformers model's tokens and its vector
_SENTENCE_MODULES = ("Transformer", "Pooling", "Normalize")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """``weights`` (base name → path) in name order; ``index`` maps a tensor's name to its file where the upload has an
    index, ``index_file`` is that index itself by its name. ``small`` are the other files that are served, by their
    path relative to the model's folder."""

    weights: dict[str, Path]
    index: dict[str, str]
    index_file: dict[str, Path]
    small: dict[str, Path]
    modules: tuple[tuple[str, str], ...]
    extra: tuple[str, ...]
    junk: tuple[str, ...]
    code: tuple[str, ...]

    @property
    def config(self) -> Path:
        return self.small[MODEL_CONFIG]

    @property
    def pickled(self) -> bool:
        """Whether the weights were saved by ``torch.save``."""
        return any(name.endswith(".bin") for name in self.weights)


def model_files(chosen: Chosen) -> ModelFiles:
    """The model in the chosen folder. Raises ``Refused`` without a configuration or with missing shards."""
    package, folder = chosen.package, chosen.folder
    if MODEL_CONFIG not in folder.files:
        what = f"{some(folder.model_weights)} has no {MODEL_CONFIG} beside it, so its architecture is unknown."
        todo = f"Upload the whole folder that save_pretrained wrote: {MODEL_CONFIG}, weights and tokenizer."
        raise Refused(failed(CHECK, Finding.CONFIG_MISSING, what, todo))
    inside = {base: package.files[name] for base, name in folder.files.items()}
    index_name = next((base for base in _INDEXES if base in inside), None)
    single = next((base for base in _SINGLE if base in inside), None)
    index = _weight_map(inside[index_name], index_name) if index_name and not single else {}
    names = [single] if single else sorted(set(index.values())) or sorted(map(posixpath.basename, folder.model_weights))
    _check_shards(names, inside)
    modules = tuple(sentence_modules(folder, package.files))
    small = {base: inside[base] for base in _SMALL_FILES if base in inside}
    for path, _ in modules:
        name = posixpath.join(folder.path, path, "config.json")
        if path and name in package.files:
            small[f"{path}/config.json"] = package.files[name]
    used = {*small.values(), *(inside[name] for name in names), *([inside[index_name]] if index_name else [])}
    return ModelFiles(
        weights={name: inside[name] for name in names},
        index=index,
        index_file={index_name: inside[index_name]} if index_name and index else {},
        small=dict(sorted(small.items())),
        modules=modules,
        extra=tuple(name for name in chosen.names if package.files[name] not in used),
        junk=chosen.junk,
        code=tuple(sorted(base for base in inside if base.endswith(".py"))),
    )


def check_model_files(files: ModelFiles) -> list[Row]:
    """Which files are served, and which were left aside."""
    size = sum(path.stat().st_size for path in files.small.values())
    if size > _MAX_SMALL_BYTES:
        largest = max(files.small, key=lambda name: files.small[name].stat().st_size)
        what = f"The files beside the weights have {size:,} bytes (limit {_MAX_SMALL_BYTES:,})"
        what += f"; {clipped(largest)} is the largest."
        return [failed(CHECK, Finding.ARCHIVE_TOO_LARGE, what, "Upload the tokenizer's own files alone.")]
    found = f"{some(files.weights)} and {len(files.small)} files beside: {some(files.small, limit=12)}"
    return [passed(CHECK, found), *note_others(files.extra, files.junk)]


def check_code(files: ModelFiles) -> list[Row]:
    """Nothing of an upload is run: code in it means that the model is not what its configuration says."""
    found = [f"{clipped(name)}" for name in files.code]
    for base in (MODEL_CONFIG, "tokenizer_config.json"):
        raw = read_object(files.small.get(base))
        found += [f"{key} in {base}" for key in ("auto_map", "trust_remote_code", "custom_pipelines") if raw.get(key)]
    if not found:
        return []
    what = f"The model brings code of its own, which is never run: {some(found, limit=6)}."
    todo = "Save it as one of transformers' own classes, and upload it without .py files and auto_map."
    return [failed("Custom code", Finding.CUSTOM_CODE, what, todo)]


def check_sentence_modules(files: ModelFiles) -> list[Row]:
    """Stages of a sentence-transformers model that workers do not compute."""
    odd = [f"{clipped(kind)} ({clipped(path) or '.'})" for path, kind in files.modules if kind not in _SENTENCE_MODULES]
    if not odd:
        return []
    what = f"{MODULES} lists {len(odd)} stages that are not served: {some(odd)}."
    todo = f"Served are {', '.join(_SENTENCE_MODULES)}: train without the others, or fold them into the model."
    return [failed("Architecture", Finding.ARCHITECTURE_UNSUPPORTED, what, todo)]


def check_settings(files: ModelFiles) -> list[Row]:
    """Small files that are read as JSON objects, so that what is wrong with one is said by its name."""
    named = {name: path for name, path in files.small.items() if name in _OBJECTS or name.endswith("/config.json")}
    odd = [f"{clipped(name)} ({path.stat().st_size:,} bytes) is no JSON object" for name, path in named.items()
           if not _is_object(path)]  # fmt: skip
    prompts = read_object(files.small.get(_PROMPTS)).get("prompts")
    if not odd and prompts is not None and not isinstance(prompts, dict):
        odd.append(f"prompts in {_PROMPTS} is {shown(prompts)}, not an object")
    if MODULES in files.small and not files.modules:
        odd.append(f"{MODULES} lists no stages")
    todo = "Save the model and its tokenizer again, and upload the files as they are written."
    return [failed("Configuration", Finding.CONFIG_INVALID, f"{some(odd)}.", todo)] if odd else []


def check_pooling(files: ModelFiles) -> list[Row]:
    """How token vectors become one lies in a folder of its own, which a flat upload loses."""
    lost = [path for path, kind in files.modules if kind == "Pooling" and f"{path}/config.json" not in files.small]
    if not lost:
        return []
    named = some(f"{path}/config.json" for path in lost)
    what = f"{MODULES} lists stages whose files ({len(lost)}) are not in the upload: {named}."
    todo = f"Upload the folder with the folders in it, or take {MODULES} out to have the mean of the tokens."
    return [failed(CHECK, Finding.FILE_MISSING, what, todo)]


def _is_object(path: Path) -> bool:
    return bool(read_object(path)) or path.read_bytes().strip(b"\xef\xbb\xbf \r\n\t").replace(b" ", b"") == b"{}"


def _weight_map(path: Path, name: str) -> dict[str, str]:
    listed = read_object(path).get("weight_map")
    if not isinstance(listed, dict) or not listed or not all(isinstance(file, str) for file in listed.values()):
        what = f"{name} has no weight_map from tensors to files."
        raise Refused(failed(CHECK, Finding.CONFIG_INVALID, what, "Save the model again with save_pretrained."))
    return listed


def _check_shards(names: list[str], inside: dict[str, Path]) -> None:
    wanted = set(names)
    for name in names:
        if match := _SHARD.fullmatch(name):
            suffix, count = posixpath.splitext(name)[1], int(match["count"])
            wanted |= {
                f"{match['stem']}-{number:05d}-of-{count:05d}{suffix}" for number in range(1, min(count, 1000) + 1)
            }
    missing = sorted(wanted - set(inside))
    if missing:
        what = f"{len(missing)} of {len(wanted)} weight files are missing: {some(missing)}."
        raise Refused(failed(CHECK, Finding.SHARD_MISSING, what, "Upload all shards of the model together."))


MODEL_FILE_CHECKS = (check_model_files, check_code, check_settings, check_sentence_modules, check_pooling)
